"""Parts of the configuration that are made in Python say what is wrong in them, in our words."""

import re
import subprocess
import sys
from typing import Any

import pytest
from pydantic import Field, ValidationError

from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.exploration import ExplorationConfig
from vedette_rl.agents.registry import BUILT_IN
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.envs import EnvConfig
from vedette_rl.errors import WrongSettingsError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.settings.stored import ScheduleConfig


class MyConfig(AgentConfig):
    synonyms = {"blocks": "n_layers", "discount": "gamma_per_step"}  # noqa: RUF012
    name: str = "mine"
    blocks: int = Field(default=2, ge=1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DqnConfig(lr=1), "lr: unknown key; did you mean learning_rate?"),
        (
            lambda: BUILT_IN["dqn"].config(kappa=1.0),
            "kappa: unknown key; agents that have kappa: iqn",
        ),
        (lambda: MyConfig(n_layers=3), "n_layers: unknown key; did you mean blocks?"),
        (lambda: MyConfig(gamma_per_step=1), "gamma_per_step: unknown key; did you mean discount?"),
        (lambda: MyConfig(gamma=0.9), "gamma: unknown key; did you mean discount?"),
        (lambda: MyConfig(blocks=0), "blocks: must be at least 1, not 0"),
        (lambda: EnvConfig(), "id: is missing"),
        (lambda: ReplayConfig(capacity="x"), "capacity: must be a whole number, not 'x'"),
        (
            lambda: ExplorationConfig(kind="x"),
            "kind: must be 'auto', 'ladder', 'linear', 'constant', 'softmax' or module:Name, not "
            "'x'",
        ),
        (
            lambda: DqnConfig(schedule={"final": 2.0}, tau=0.0),
            "schedule.final: must be at most 1, not 2.0\ntau: must be more than 0, not 0.0",
        ),
        (
            lambda: ScheduleConfig(kind="linear"),
            "schedule: schedule.total_opts 0 must be above schedule.warmup_opts 0: name the "
            "optimization step at which schedule.final is reached",
        ),
    ],
)
def test_a_wrong_setting_is_a_line_that_names_it(make: Any, said: str) -> None:
    with pytest.raises(WrongSettingsError, match=f"^{re.escape(said)}$") as wrong:
        make()
    assert wrong.value.__context__ is None  # nothing of pydantic's above it


def test_what_is_read_from_a_file_is_explained_with_the_file_and_not_here() -> None:
    for read in (MyConfig.model_validate, EnvConfig.model_validate):
        with pytest.raises(ValidationError):
            read({"blocks": 0})
    made = MyConfig.model_validate_json('{"blocks": 3}')
    assert made == MyConfig(blocks=3)
    assert made.model_copy(update={"blocks": 4}).blocks == 4


def test_it_does_not_depend_on_what_else_was_imported() -> None:
    """In a process of its own, which has not imported `vedette`, nor an agent."""
    code = "from vedette_rl.replay.config import ReplayConfig; ReplayConfig(size=1)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stderr.splitlines()[-1] == (
        "vedette_rl.errors.WrongSettingsError: size: unknown key; did you mean capacity?"
    )
