"""Decisions as pure functions of values: routing, quota, retry, filter."""
