"""The append-only log: frames in, frames out, in offset order."""
