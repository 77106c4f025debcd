"""Where in a cluster a request is answered."""
