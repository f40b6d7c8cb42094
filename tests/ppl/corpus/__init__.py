"""Models written in the manner of public examples, each with what lockquack must make of it."""
