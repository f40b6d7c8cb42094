"""What is refused before models are combined."""
