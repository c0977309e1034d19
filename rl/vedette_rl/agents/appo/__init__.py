"""APPO: asynchronous PPO (Schulman et al. 2017) with V-trace (Espeholt et al. 2018)."""
