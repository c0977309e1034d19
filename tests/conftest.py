"""Property tests have no time limit for an example: a loaded machine would fail them. One thread a
process: where cores are shared, two threads of torch wait for one another ten times as long as they
compute."""

import os

from hypothesis import HealthCheck, settings

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported; children inherit it

settings.register_profile("loaded", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loaded")
