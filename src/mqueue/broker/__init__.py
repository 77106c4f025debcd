"""The walks of a message: publish, deliver, settle."""
