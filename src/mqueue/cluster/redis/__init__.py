"""Redis, where a cluster has one: copies, hints and counters. Losing it costs time, never a message."""
