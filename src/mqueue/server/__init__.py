"""What stands at the door: the faces, and who may pass them. Knows the broker; does not know the client."""
