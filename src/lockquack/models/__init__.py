"""What a user holds, a model, and what an adapter implements, a source."""
