"""Who may play how many runs on a model, where a queue is strict."""

from __future__ import annotations

import pytest

from vedette_services.learner.gateway.run_grants import PATIENCE_S, RunGrants

ENVS = 4
MODEL = (1, 100)
TWO = {"a": {0: 9, 1: 9}, "b": {0: 9}}


def grants(runs: int, alive: dict[str, dict[int, int]]) -> RunGrants:
    """Of blocks of so many runs, with a model that was published at 0."""
    made = RunGrants(ENVS, runs, 0.0)
    made.on_model(*MODEL, alive, 0.0)
    return made


def hand_over(made: RunGrants, *actors: tuple[str, int], at: float = 1.0) -> None:
    for manager, actor in actors:
        made.on_batch(manager, actor, *MODEL, at)


def test_nothing_is_granted_before_there_is_a_model() -> None:
    assert RunGrants(ENVS, 8, 0.0).runs("a") == 0


@pytest.mark.parametrize(
    ("runs", "alive", "each"), [(12, TWO, 1), (24, TWO, 2), (35, TWO, 2), (5, TWO, 1), (64, {}, 1)]
)
def test_it_begins_with_the_runs_that_a_block_has_for_each_environment(
    runs: int, alive: dict[str, dict[int, int]], each: int
) -> None:
    made = grants(runs, alive)
    assert made.runs("a") == made.runs("one that joins") == each


def test_no_more_are_granted_while_somebody_plays() -> None:
    made = grants(16, TWO)
    hand_over(made, ("a", 0), ("a", 1))
    assert made.raise_runs(8, MODEL, TWO, 2.0) == []
    assert made.wait_reason == (
        "actors that have played their runs on version 100 wait, as its block lacks 8: those of "
        "actors b/0 (replay.strict)"
    )
    hand_over(made, ("b", 0))
    assert made.raise_runs(4, MODEL, TWO, 2.1) != []


def test_no_more_managers_play_again_than_are_needed_and_they_take_turns() -> None:
    alive = {"a": {0: 9}, "b": {0: 9}, "c": {0: 9}}
    made = grants(16, alive)
    raised = []
    for version in range(3):
        model = (1, 200 + version)
        made.on_model(*model, alive, version)
        for manager in alive:
            made.on_batch(manager, 0, *model, version + 0.5)
        raised += made.raise_runs(4, model, alive, version + 0.6)
        assert made.raise_runs(4, model, alive, version + 0.7) == [], "one plays again"
    assert sorted(raised) == ["a", "b", "c"]


def test_all_that_is_lacking_is_granted_at_once() -> None:
    """A fleet that was not there yet as the model was published, and large blocks."""
    made = grants(256, {})
    hand_over(made, ("a", 0), ("a", 1), ("b", 0))
    assert sorted(made.raise_runs(244, MODEL, TWO, 2.0)) == ["a", "b"]
    assert made.runs("a") == made.runs("b") == 1 + 244 // (3 * ENVS)


def test_nothing_is_granted_for_another_model_than_that_which_was_published() -> None:
    """The trainer's record may be of the model before, or behind."""
    made = grants(16, TWO)
    hand_over(made, ("a", 0), ("a", 1), ("b", 0))
    for model in ((1, 99), (1, 101), (2, 100)):
        assert made.raise_runs(4, model, TWO, 2.0) == []


def test_runs_of_other_models_do_not_count() -> None:
    made = grants(16, {"a": {0: 9}})
    made.on_batch("a", 0, 1, 99, 1.0)
    assert made.raise_runs(16, MODEL, {"a": {0: 9}}, 2.0) == []


def test_who_died_is_not_waited_for() -> None:
    made = grants(12, TWO)
    hand_over(made, ("a", 0), ("b", 0))
    assert made.raise_runs(4, MODEL, TWO, 2.0) == []
    assert made.raise_runs(4, MODEL, {"a": {0: 9}, "b": {0: 9}}, 2.1) != []
    assert made.raise_runs(4, MODEL, {"b": {0: 9}}, 2.2) != [], "nor is a manager that has gone"


def test_who_hands_nothing_over_is_silent_after_a_while_and_until_it_is_heard_of() -> None:
    made = grants(12, TWO)
    hand_over(made, ("a", 0), ("a", 1), at=3.0)
    assert made.raise_runs(4, MODEL, TWO, 3.0 + PATIENCE_S - 0.1) == []
    assert made.raise_runs(4, MODEL, TWO, 3.0 + PATIENCE_S) == ["a"]
    assert (made.runs("a"), made.runs("b")) == (2, 1)
    other = (1, 132)
    made.on_model(*other, TWO, 20.0)
    for actor in (0, 1):
        made.on_batch("a", actor, *other, 21.0)
    assert made.raise_runs(4, other, TWO, 21.1) == ["a"], "b is silent still"
    made.on_batch("b", 0, *MODEL, 22.0)  # what it has played on the model before
    for actor in (0, 1):
        made.on_batch("a", actor, *other, 22.0)
    assert made.raise_runs(4, other, TWO, 22.1) == [], "it plays"


def test_nobody_plays_in_vain_where_all_are_slow() -> None:
    """A run of a slow simulator takes minutes: nobody has handed over, and nobody is silent."""
    made = grants(12, TWO)
    for seconds in range(0, 500, 5):
        moving = {"a": {0: seconds, 1: 9}, "b": {0: 9}}
        assert made.raise_runs(12, MODEL, moving, float(seconds)) == []
    hand_over(made, ("a", 0), at=500.0)
    assert made.raise_runs(8, MODEL, TWO, 500.1) == []
    hand_over(made, ("a", 1), at=505.0)
    assert made.raise_runs(4, MODEL, TWO, 514.9) == []


def test_the_slow_are_waited_for_as_long_as_the_last_block_took() -> None:
    made = grants(12, TWO)
    hand_over(made, ("a", 0), ("a", 1), at=1.0)
    hand_over(made, ("b", 0), at=9.0 + PATIENCE_S)
    other = (1, 132)
    made.on_model(*other, TWO, 20.0)
    for actor in (0, 1):
        made.on_batch("a", actor, *other, 21.0)
    assert made.raise_runs(4, other, TWO, 21.0 + PATIENCE_S + 1.0) == []
    assert made.raise_runs(4, other, TWO, 21.0 + PATIENCE_S + 9.5) == ["a"]
    another = (1, 164)
    made.on_model(*another, TWO, 60.0)
    made.on_batch("b", 0, *MODEL, 60.0)
    for actor in (0, 1):
        made.on_batch("a", actor, *another, 61.0)
    waited = 61.0 + PATIENCE_S + 9.5
    assert made.raise_runs(4, another, TWO, waited) == ["a"], "that it waited does not add up"


def test_a_gateway_that_does_not_know_who_handed_over_lets_all_play_again() -> None:
    """All wait, and none of them is known to: it has started since. Which of them hangs, it does
    not know either."""
    made = grants(12, TWO)
    assert made.raise_runs(4, MODEL, TWO, 0.1) == []
    assert made.raise_runs(4, MODEL, TWO, PATIENCE_S) == []
    at = PATIENCE_S + 0.1
    assert made.raise_runs(4, MODEL, TWO, at) == ["a", "b"]
    assert (made.runs("a"), made.runs("b")) == (2, 2)
    assert made.raise_runs(4, MODEL, TWO, at + 2 * PATIENCE_S - 0.1) == [], "all may be slow"
    assert made.raise_runs(4, MODEL, TWO, at + 2 * PATIENCE_S) == ["a", "b"]


def test_why_actors_wait_is_said_while_the_learner_learns() -> None:
    made = grants(12, TWO)
    made.raise_runs(0, MODEL, TWO, 1.0)
    assert made.wait_reason == (
        "actors wait for the model behind version 100: the learner learns from its block "
        "(replay.strict)"
    )
