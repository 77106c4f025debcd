"""The log on disk: segments of commits, behind a small `Disk`."""
