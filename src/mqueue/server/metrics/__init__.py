"""What the server tells of itself, in the format of Prometheus: counted as it happens, or looked up when asked for."""
