"""The sums over draws, where most of the time goes: in numpy, or compiled."""
