"""Invariants over random models, operators, rules, layouts, labels, files and bad input.

``make test`` runs a few hundred fixed cases, ``make fuzz CASES=20000`` as many random ones as
wanted. See ``conftest.py`` for how cases are shared out and how a finding is reproduced.
"""
