"""Requests that belong to another node: handed to it as they came, and its answers handed through."""
