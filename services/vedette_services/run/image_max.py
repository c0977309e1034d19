"""What a new run divides the pixels of its images by."""

from __future__ import annotations

from pathlib import Path

from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.config import NetworkConfig
from vedette_rl.networks.observation import observation_parts, odd_ranges, range_end
from vedette_services.config.run_config import RunConfig
from vedette_services.run.directory import RunDirectory
from vedette_services.run.initial_weights import read_agent_settings
from vedette_services.run.start import Start


def choose_image_max(config: RunConfig, spaces: Spaces, out: Path, start: Start) -> RunConfig:
    """Have a new run divide each image by the end of its space where that is not 255.

    A run that goes on keeps what its weights were learned with, one that begins with the weights of
    another run takes that run's, and the network of a custom loop divides by what its author wrote.
    """
    agent = config.agent
    if not (isinstance(agent, NetworkConfig) and isinstance(agent.network, str)):
        return config  # a custom agent's own matter
    begins = start.fresh or not RunDirectory(out).exists
    odd = odd_ranges(agent, spaces.observation)
    if start.custom_loop or not begins or not odd:
        return config
    if config.learner.init_from is None:
        parts = observation_parts(spaces.observation)
        chosen = {image.column: range_end(parts[image.column]) for image in odd}
    else:
        columns = [image.column for image in odd]
        before = read_agent_settings(Path(config.learner.init_from)).get("image_max", {})
        chosen = {column: before[column] for column in columns if column in before}
    agent = agent.model_copy(update={"image_max": {**chosen, **agent.image_max}})
    return config.model_copy(update={"agent": agent})
