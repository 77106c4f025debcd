"""What mqueue claims about speed, flatness and memory, measured: `make bench`."""
