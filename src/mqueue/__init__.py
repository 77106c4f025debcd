"""mqueue."""
