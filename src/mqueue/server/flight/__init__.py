"""Arrow Flight: publish, consume and scan in record batches, over gRPC, for whoever has Arrow's own libraries."""
