"""What a new run divides the pixels of its images by."""

from __future__ import annotations

from pathlib import Path

from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.config import NetworkConfig
from vedette_rl.networks.observation import odd_ranges
from vedette_services.config.loading import read_toml
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import ConfigError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.start import Start


def choose_image_range(config: RunConfig, spaces: Spaces, out: Path, start: Start) -> RunConfig:
    """Have a new run divide its images by their own range where that does not end at 255.

    A run that goes on keeps what its weights were learned with, one that begins with the weights of
    another run takes that run's, and the network of a custom loop divides by what its author wrote.
    """
    agent = config.agent
    begins = start.fresh or not RunDirectory(out).exists
    if not (isinstance(agent, NetworkConfig) and isinstance(agent.network, str)):
        return config  # a custom agent's own matter
    if start.custom_loop or not begins:
        return config
    if "image_range" in agent.model_fields_set or not odd_ranges(agent, spaces.observation):
        return config
    range_ = _range_of_weights(config.learner.init_from)
    chosen = agent.model_copy(update={"image_range": range_})
    return config.model_copy(update={"agent": chosen})


def _range_of_weights(init_from: str | None) -> str:
    """The `image_range` of the run whose weights another begins with; ``space`` without one."""
    if init_from is None:
        return "space"
    try:
        agent = read_toml(RunDirectory(Path(init_from)).config_file).get("agent")
    except ConfigError:  # whoever reads its weights says what is wrong there
        return "space"
    default = NetworkConfig.model_fields["image_range"].default
    return str(agent.get("image_range", default) if isinstance(agent, dict) else default)
