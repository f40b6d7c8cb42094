"""The result of combining models, and the functions that make it."""
