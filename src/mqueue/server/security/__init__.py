"""Who is calling, what they may do, and over which line: pure decisions and TLS. Knows no HTTP; the faces call it."""
