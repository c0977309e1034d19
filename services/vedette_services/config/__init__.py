"""The configuration of a run: one typed class a part, one TOML file, presets as data.

Read by every daemon and by no library code: what learns gets its own part and nothing else.
"""

from vedette_services.config.loading import load_config, read_config
from vedette_services.config.parts import ActorsConfig, EvaluationConfig, LearnerConfig, StopConfig
from vedette_services.config.run_config import RunConfig
from vedette_services.config.saving import publish_config, write_config

__all__ = [
    "ActorsConfig",
    "EvaluationConfig",
    "LearnerConfig",
    "RunConfig",
    "StopConfig",
    "load_config",
    "publish_config",
    "read_config",
    "write_config",
]
