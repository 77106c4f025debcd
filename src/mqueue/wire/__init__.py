"""Bytes to typed values and back: everything that crosses a border is parsed here."""
