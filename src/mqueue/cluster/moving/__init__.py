"""Virtual shards that move from one server to another, and servers that join."""
