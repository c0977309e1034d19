"""SAC, soft actor-critic (Haarnoja et al. 2018)."""
