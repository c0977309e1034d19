"""Measurements do not pass over actors that die, nor wait for a learner that has ended."""

from typing import Any

import pytest

from bench.daemons import check_actors, learner_of
from vedette_services.config import load_config
from vedette_services.errors import ChildFailedError, ServicesError
from vedette_services.status.status import ActorStatus, ManagerStatus, Status


def status(**actor: Any) -> Status:
    return Status(
        managers=(ManagerStatus(id="m", actors=(ActorStatus(id=0), ActorStatus(id=1, **actor))),)
    )


def test_actors_that_live_are_passed_over() -> None:
    check_actors(status())


@pytest.mark.parametrize("died", [{"restarts": 1}, {"error": "ValueError: no"}])
def test_an_actor_that_died_ends_the_measurement(died: dict[str, Any]) -> None:
    with pytest.raises(ServicesError, match="actor 1 of m died"):
        check_actors(status(**died))


def test_a_learner_that_ends_before_it_answers_ends_the_measurement() -> None:
    config = load_config(env="CartPole-v1", settings=["learner.device=cuda:99"]).config
    with (
        pytest.raises(
            ChildFailedError, match=r"ended with exit status 2: vedette: learner\.device"
        ),
        learner_of(config),
    ):
        pytest.fail("it answers")
