"""PostgreSQL as a log: what is durable of a cluster."""
