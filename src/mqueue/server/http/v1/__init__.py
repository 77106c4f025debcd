"""The routes of `/v1`, a module for each kind of call."""
