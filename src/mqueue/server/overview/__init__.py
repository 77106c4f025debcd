"""All topics at a glance, again and again: what a dashboard shows first."""
