"""Where logs and journals are kept."""
