"""Samplers for pools of densities, on arrays."""
