"""From the draws of a model to its prediction at every observation."""
