"""The combination as a distribution."""
