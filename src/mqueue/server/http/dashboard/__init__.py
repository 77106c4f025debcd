"""The dashboard: a page, its modules and its style, served as they lie here. It stands on the routes of `/v1`."""
