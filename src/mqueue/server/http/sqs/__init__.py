"""The protocol of Amazon SQS on the HTTP port: `actions` is the way in, docs/sqs.md what maps to what."""
