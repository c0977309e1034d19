"""IQN, implicit quantile networks (Dabney et al. 2018)."""
