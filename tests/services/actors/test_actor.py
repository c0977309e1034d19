"""An actor makes as many environments as it plays."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest
from configurations import configured

from vedette_protocol.schema import Schema
from vedette_rl.envs import make
from vedette_rl.envs.native_vector_env import NativeVectorEnv
from vedette_rl.envs.spaces import column_bounds, transition_dtype
from vedette_services.actors.actor import build_actor
from vedette_services.actors.actor_spec import ActorSpec
from vedette_services.config.peer_settings import settings_for_peers


def test_a_vector_form_of_the_runs_spaces_is_all_that_an_actor_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = configured("actors.envs_per_actor=32", "agent.n_step=1", env="CartPole-v1")
    spaces = make.probe_environment(config.env)
    monkeypatch.setattr(make, "make_env", Mock(side_effect=AssertionError("a single one")))
    spec = ActorSpec(
        index=0,
        number=0,
        restarts=0,
        seed=0,
        epoch=1,
        env=settings_for_peers(config.env),
        agent=settings_for_peers(config.agent),
        actors=settings_for_peers(config.actors),
        schema=Schema.from_dtype(transition_dtype(spaces), column_bounds(spaces)).to_wire(),
    )
    loop = build_actor(spec, Mock(), Mock(), Mock())
    envs = loop._loop.envs
    assert isinstance(envs, NativeVectorEnv)
    assert len(envs) == 32
    assert np.isfinite(envs.reset()["obs"]).all()
    envs.close()
