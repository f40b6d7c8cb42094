"""How weights are fitted: what to minimise for an operator and a rule, and how."""
