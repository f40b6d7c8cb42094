"""What is remarked on a result."""
