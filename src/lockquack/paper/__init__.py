"""The experiments of the paper, run again: ``lockquack paper``.

One file per concept: the two models and their closed-form predictions (:mod:`scenarios`), the
methods (:mod:`methods`), sampling, over-fitting, the demonstration of operators, figures, and
the runner that spreads replications over processes.
"""
