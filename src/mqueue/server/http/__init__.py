"""The HTTP face: routes, requests and answers. Knows the broker's calls and the wire's JSON, no storage, no files."""
