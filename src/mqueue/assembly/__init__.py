"""Puts the product together: the only place that names concrete classes."""
