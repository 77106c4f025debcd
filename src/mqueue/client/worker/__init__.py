"""The worker: handlers called for messages, whose outcome settles them. `app` is the whole, the rest its parts."""
