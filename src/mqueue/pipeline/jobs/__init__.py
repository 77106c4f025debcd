"""What can be done with many messages at once, one module for each."""
