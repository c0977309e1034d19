"""What environments of gym's old API give is refused with the way out, whatever is around them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import probe_environment
from vedette_rl.errors import EnvironmentFaultError


class Current(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 0.0, True, False, {}


class NoInfo(Current):
    """Its observation has two numbers, which were taken for (obs, info)."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32)


class NoSeed(Current):
    def reset(self) -> Any:  # type: ignore[override]
        return np.zeros(2, np.float32), {}


class FourValues(Current):
    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 0.0, True, {}


class Added(gym.ObservationWrapper[Any, Any, Any]):
    """Unpacks what it is given."""

    def observation(self, observation: Any) -> Any:
        return observation


@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "wrapped"])
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("NoInfo", r"reset\(\) does not give \(obs, info\).*return obs and a dictionary"),
        ("NoSeed", r"reset\(\) takes no seed.*seed=None, options=None"),
        ("FourValues", r"step\(\) gives four values.*terminated, truncated, info"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_call_of_the_old_api_is_refused_with_its_place(
    name: str, fault: str, wrapped: bool
) -> None:
    wrappers = [{"name": f"{__name__}:Added"}] * wrapped
    config = EnvConfig.model_validate({"id": f"{__name__}:{name}", "wrappers": wrappers})
    call = "step" if name == "FourValues" else "reset"
    with pytest.raises(EnvironmentFaultError, match=rf"{fault}.*\({name}\.{call}, test_current_"):
        probe_environment(config)


def test_an_environment_as_it_should_be_passes_without_a_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    assert probe_environment(EnvConfig(id=f"{__name__}:Current")).observation.shape == (2,)
    assert not list(recwarn)
