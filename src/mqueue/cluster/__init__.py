"""A node of a cluster: owned virtual shards, publishing from anywhere, forwarding."""
