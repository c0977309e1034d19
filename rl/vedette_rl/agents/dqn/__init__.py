"""DQN, deep Q-learning (Mnih et al. 2015)."""
