"""Files: where they may be written, and what is in them."""
