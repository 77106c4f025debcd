"""The words of the domain: values, limits, errors, states. Knows no I/O and no other package."""
