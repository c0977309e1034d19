"""Who plays, who died, who starts again and when."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from vedette_rl.envs.failures import PROGRESS_STEPS
from vedette_services.actors.actor_stats import ActorStats, RecentEpisodes
from vedette_services.actors.roster import DEATHS_AT_START, HEALTHY_S, Backoff, Roster
from vedette_services.host.stack_request import StackFrame

CAUSE = "ValueError: the sky fell"


def playing(env_steps: int) -> ActorStats:
    return ActorStats(state="playing", env_steps=env_steps)


def started(roster: Roster, now: float) -> None:
    for actor in roster.due_actors(now):
        roster.on_started(actor, now)


def test_an_actor_that_dies_starts_again_after_a_pause_that_doubles() -> None:
    roster = Roster(1)
    now = 0.0
    pauses = []
    for _ in range(9):
        started(roster, now)
        roster.on_stats(0, playing(5), now)
        roster.on_exited(0, -9, "", now)
        pauses.append(roster.actors[0].start_at - now)
        assert roster.due_actors(now + pauses[-1] - 0.01) == []
        now += pauses[-1]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_the_pause_is_what_the_run_says() -> None:
    roster = Roster(1)
    now = 0.0
    pauses = []
    roster.begin_run(now, Backoff(first_s=2.0, last_s=5.0))
    for _ in range(4):
        started(roster, now)
        roster.on_exited(0, -9, "", now)
        pauses.append(roster.actors[0].start_at - now)
        now += pauses[-1]
    assert pauses == [2, 4, 5, 5]


def test_an_actor_that_lived_long_starts_again_soon() -> None:
    roster = Roster(1)
    now = 0.0
    for life in (0.0, 0.0, HEALTHY_S + 1):
        started(roster, now)
        now += life
        roster.on_exited(0, 1, "", now)
        now = roster.actors[0].start_at
    assert roster.actors[0].backoff_s == 0.5


def test_counts_go_on_over_restarts_and_the_reason_is_reported() -> None:
    roster = Roster(2)
    started(roster, 0.0)
    stats = ActorStats(
        state="playing", env_steps=40, episodes=3, version=8, returns=2, return_sum=30.0
    )
    roster.on_stats(1, stats, 1.0)
    assert roster.on_exited(1, 1, CAUSE, 1.0) == "ValueError: the sky fell"
    report = roster.reports()[1]
    assert (report.alive, report.env_steps, report.restarts) == (False, 40, 0)
    assert (report.returns, report.return_sum) == (2, 30.0)
    assert report.error == "ValueError: the sky fell"
    started(roster, 2.0)
    roster.on_stats(1, replace(playing(2), returns=1, return_sum=-5.0), 2.5)
    report = roster.reports()[1]
    assert (report.returns, report.return_sum) == (3, 25.0)
    assert (report.alive, report.env_steps, report.episodes, report.restarts) == (True, 42, 3, 1)


@pytest.mark.parametrize(
    ("code", "reason"), [(-9, "killed by SIGKILL"), (-200, "killed by signal 200"), (5, "status 5")]
)
def test_a_death_without_a_traceback_is_told_by_how_it_ended(code: int, reason: str) -> None:
    roster = Roster(1)
    started(roster, 0.0)
    assert reason in roster.on_exited(0, code, "", 1.0)


@pytest.mark.parametrize("dies", [False, True])
def test_what_was_wrong_is_reported_at_the_end_though_it_is_over(dies: bool) -> None:
    roster = Roster(1)
    started(roster, 0.0)
    error = "failed once, made again: RuntimeError: boom"
    if dies:
        roster.on_stats(0, playing(5), 0.0)
        error = roster.on_exited(0, 1, CAUSE, 1.0)
        started(roster, 2.0)
        roster.on_stats(0, playing(5), 3.0 + HEALTHY_S)
        assert roster.reports()[0].error == ""
    else:
        roster.on_stats(0, ActorStats(state="playing", env_steps=5, error=error, failures=1), 0.0)
    roster.close()
    assert roster.reports()[0].error == error
    assert roster.on_exited(0, 0, "", 99.0) == ""
    assert roster.reports()[0].error == error


def test_another_run_begins_without_the_errors_of_the_last() -> None:
    roster = Roster(1)
    started(roster, 0.0)
    roster.on_exited(0, 1, CAUSE, 1.0)
    roster.begin_run(2.0, Backoff())
    roster.close()
    assert roster.reports()[0].error == ""


def test_five_deaths_in_a_row_before_a_step_are_hopeless() -> None:
    roster = Roster(2)
    now = 0.0
    for death in range(DEATHS_AT_START):
        assert not roster.is_hopeless
        now += 100
        started(roster, now)
        roster.on_exited(death % 2, 1, CAUSE, now)
    assert roster.is_hopeless


def test_deaths_after_a_step_was_played_are_never_hopeless() -> None:
    roster = Roster(1)
    for now in range(0, 1000, 50):
        started(roster, float(now))
        roster.on_stats(0, playing(1), float(now))
        roster.on_exited(0, 1, CAUSE, float(now))
    assert not roster.is_hopeless


def test_an_actor_that_stands_still_is_hung_and_told_once() -> None:
    roster = Roster(1)
    started(roster, 0.0)
    roster.on_stats(0, playing(8), 0.5)
    for tick in range(60):
        roster.on_stats(0, playing(8), float(tick))
        assert roster.find_hung(float(tick), 60.0) == []
    assert [actor.index for actor in roster.find_hung(61.0, 60.0)] == [0]
    assert roster.find_hung(62.0, 60.0) == []
    assert "made no step within 60 s" in roster.on_exited(0, -9, "", 62.0)


def test_the_time_in_which_environments_are_made_is_no_standstill() -> None:
    roster = Roster(1)
    started(roster, 0.0)
    for tick in range(100):
        assert roster.find_hung(float(tick), 60.0) == []
    roster.on_stats(0, playing(0), 100.0)
    assert roster.find_hung(159.0, 60.0) == []
    assert [actor.index for actor in roster.find_hung(161.0, 60.0)] == [0]


@pytest.mark.parametrize("state", ["waiting for room", "waiting for a model"])
def test_an_actor_that_waits_for_us_is_not_hung(state: str) -> None:
    roster = Roster(1)
    started(roster, 0.0)
    for tick in range(200):
        roster.on_stats(0, ActorStats(state=state, env_steps=8), float(tick))  # type: ignore[arg-type]  # parametrized
        assert roster.find_hung(float(tick), 60.0) == []


def test_time_in_which_the_manager_was_stopped_does_not_count() -> None:
    roster = Roster(1)
    started(roster, 0.0)
    roster.on_stats(0, playing(8), 0.0)
    roster.on_paused(499.0, 500.0)  # SIGSTOP, SIGCONT
    assert roster.find_hung(559.0, 60.0) == []
    assert roster.find_hung(561.0, 60.0)


def test_after_closing_nobody_starts_and_a_clean_end_is_no_death() -> None:
    roster = Roster(2)
    started(roster, 0.0)
    roster.close()
    assert len(roster.alive_actors) == 2
    assert roster.on_exited(0, 0, "", 1.0) == ""
    assert roster.on_exited(1, 1, CAUSE, 1.0) == "ValueError: the sky fell"
    assert roster.alive_actors == []
    assert roster.due_actors(1e9) == []


def test_another_run_takes_every_seat_once_its_process_is_gone() -> None:
    roster = Roster(2)
    started(roster, 0.0)
    roster.on_exited(1, 1, CAUSE, 0.0)
    assert [actor.index for actor in roster.begin_run(1.0, Backoff())] == [0]
    assert [actor.index for actor in roster.due_actors(1.0)] == [1]
    assert roster.on_exited(0, -9, "", 1.1) == ""
    assert [actor.index for actor in roster.due_actors(1.1)] == [0, 1]


def dies_quickly(roster: Roster, index: int, now: float, cause: str = CAUSE) -> None:
    """Its process plays a few steps and dies within a second."""
    roster.on_started(roster.actors[index], now)
    roster.on_stats(index, playing(5), now + 0.5)
    roster.on_exited(index, 1, cause, now + 1.0)


def test_where_nobody_waits_exceptions_soon_after_every_start_are_hopeless() -> None:
    roster = Roster(2, gives_up=True)
    for now in (0.0, 10.0, 20.0):
        dies_quickly(roster, 0, now)
    assert not roster.is_hopeless  # the other plays
    dies_quickly(roster, 1, 20.0)
    assert roster.is_hopeless


def test_elsewhere_actors_are_started_again_for_ever() -> None:
    roster = Roster(1)
    for now in range(0, 1000, 10):
        dies_quickly(roster, 0, float(now))
    assert not roster.is_hopeless
    assert roster.reports()[0].error == CAUSE


@pytest.mark.parametrize(
    "came_of_it",
    [
        pytest.param(ActorStats(state="playing", env_steps=100, episodes=1), id="an episode"),
        pytest.param(ActorStats(state="playing", env_steps=PROGRESS_STEPS), id="many steps"),
        pytest.param(
            ActorStats(state="playing", env_steps=9 * PROGRESS_STEPS, failures=8),
            id="many for each failure",
        ),
    ],
)
def test_an_actor_of_which_something_has_come_may_die_for_ever(came_of_it: ActorStats) -> None:
    """However soon it dies: a simulator may fail once in 1,000 steps, and step in a microsecond."""
    roster = Roster(1, gives_up=True)
    for now in range(100):
        roster.on_started(roster.actors[0], float(now))
        roster.on_stats(0, came_of_it, now + 0.1)
        assert roster.on_exited(0, 1, CAUSE, now + 0.2) == CAUSE
        assert not roster.is_hopeless


def test_environments_that_fail_more_often_than_they_play_are_no_progress() -> None:
    roster = Roster(1, gives_up=True)
    for now in (0.0, 1.0, 2.0):
        roster.on_started(roster.actors[0], now)
        stats = ActorStats(state="playing", env_steps=3 * PROGRESS_STEPS, failures=10)
        roster.on_stats(0, stats, now)
        roster.on_exited(0, 1, CAUSE, now + 0.5)
    assert roster.is_hopeless
    assert roster.failures == 30


def test_an_actor_that_played_for_a_minute_or_was_killed_begins_anew() -> None:
    roster = Roster(1, gives_up=True)
    for now in (0.0, 100.0):
        dies_quickly(roster, 0, now)
        dies_quickly(roster, 0, now + 10)
        roster.on_started(roster.actors[0], now + 20)
        roster.on_stats(0, playing(5), now + 20 + HEALTHY_S + 1)
        roster.on_exited(0, 1, CAUSE, now + 20 + HEALTHY_S + 2)
    dies_quickly(roster, 0, 200.0)
    dies_quickly(roster, 0, 210.0)
    dies_quickly(roster, 0, 220.0, cause="")  # of a signal
    assert not roster.is_hopeless


def test_environments_that_are_made_again_have_as_long_as_at_the_start() -> None:
    roster = Roster(1)
    started(roster, 0.0)
    roster.on_stats(0, playing(5), 1.0)
    roster.on_stats(0, ActorStats(state="making an environment again", env_steps=5), 2.0)
    assert roster.find_hung(100.0, 10.0) == []
    assert [actor.index for actor in roster.find_hung(183.0, 10.0)] == [0]


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        (("sleep", "reset", "_reset_each"), "waits for reset() of an environment"),
        (("recv", "step", "_step_each"), "waits for step() of an environment"),
        (("connect", "__init__", "make", "_make_env"), "waits for its constructor of"),
        (("wait", "main"), "made no step within 60 s"),
        ((), "made no step within 60 s"),
    ],
)
def test_an_actor_is_killed_for_what_it_stands_at(functions: tuple[str, ...], said: str) -> None:
    roster = Roster(1)
    started(roster, 0.0)
    roster.on_stats(0, playing(5), 0.0)
    roster.find_hung(61.0, 60.0)
    ours = "/x/vedette_rl/envs/vector_env.py"
    frames = [StackFrame("/home/me/sim.py", 12, name) for name in functions[:-1]]
    frames += [StackFrame(ours.replace("vector_env", "make"), 9, name) for name in functions[-1:]]
    why = roster.on_inspected(0, frames)
    assert said in why
    assert "actors.step_timeout_s" in why
    if functions:
        assert f"it is at sim.py:12, in {functions[0]}" in why
    assert roster.on_exited(0, -9, "", 62.0) == why


def test_time_before_the_first_step_does_not_count_as_playing() -> None:
    roster = Roster(1, gives_up=True)
    for start in (0.0, 1000.0, 2000.0):
        started(roster, start)
        for waited_s in range(0, 100, 5):
            roster.on_stats(0, ActorStats(state="waiting for a model"), start + waited_s)
        roster.on_stats(0, playing(5), start + 100)
        roster.on_exited(0, 1, CAUSE, start + 101)
    assert roster.is_hopeless


def test_returns_that_are_not_finite_are_left_out_of_the_mean() -> None:
    tally = RecentEpisodes()
    tally.add([(math.nan, 5)])
    assert (tally.return_mean, tally.length_mean, tally.episodes) == (None, 5.0, 1)
    tally.add([(2.0, 5), (math.inf, 5), (1e308, 5), (-1e308, 5)])
    assert (tally.return_mean, tally.episodes) == (2.0, 5)
    assert (tally.return_sum, tally.returns) == (2.0, 1)
