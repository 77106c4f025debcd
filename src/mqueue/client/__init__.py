"""Programs that talk to a queue which is elsewhere, and the worker that calls handlers for its messages."""
