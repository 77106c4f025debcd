"""The log of a node: what was answered with durability `wal` and is on its way to its shard."""
