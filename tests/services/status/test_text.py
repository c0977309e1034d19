import io
import json
from dataclasses import replace
from typing import Any

import pytest

from vedette.live import LineView, print_once, view_for
from vedette.live.views import TerminalView
from vedette_rl.number_format import format_short
from vedette_services.status import stop_conditions
from vedette_services.status import text as status_text
from vedette_services.status.schema import decode
from vedette_services.status.status import Checkpoint, Eval, Rates, Samples, Status, Time

SAID: dict[str, Any] = {
    "run_id": "a1",
    "epoch": 2,
    "opt_steps": 1200,
    "env_steps": 40_000,
    "waits": "",
    "samples": {"produced": 40_000, "inserted": 39_900, "in_flight": 100, "dropped": 0},
    "rates": {"samples_per_sec": 3400.4, "opt_steps_per_sec": 5.25, "samples_per_opt_step": 33.3},
    "replay": {"size": 39_900, "capacity": 100_000, "bytes": 5 << 20},
    "lag": {"mean": 12.4, "p95": 20, "max": 31, "seconds_mean": 0.04},
    "eval": {
        "return_mean": 180.0,
        "return_std": 20.0,
        "version": 1000,
        "best_return_mean": 210.5,
        "best_version": 800,
    },
    "rollout": {"return_mean": 100.0},
    "stop": {"max_opts": 2400, "max_env_steps": 0, "max_seconds": 0.0, "target_return": 475.0},
    "managers": [
        {
            "id": "host-1",
            "host": "host",
            "actors": [
                {"id": 0, "alive": True, "restarts": 1, "return_mean": 100.0},
                {"id": 1, "alive": False, "restarts": 0, "return_mean": None},
            ],
            "window": {"batches": 3, "bytes": 100},
            "last_seen_s": 0.2,
        }
    ],
}


def made(said: dict[str, Any]) -> Status:
    """A status as a learner's answer is read."""
    found = decode(Status, json.dumps(said).encode())
    assert found is not None
    return found


STATUS = made(SAID)


def test_a_line_says_how_far_how_well_and_how_fast() -> None:
    said = status_text.status_line(STATUS)
    assert "opts 1,200 of 2,400" in said
    assert "return 100.0" in said
    assert "best eval 210.5 of 475" in said
    assert "3,400 samples/s" in said
    assert "5.2 opts/s" in said
    assert "waits" not in said


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (704, "704 rejected (after stop.max_env_steps)"),
        (600, "704 rejected (600 after stop.max_env_steps)"),
        (0, "704 rejected"),
    ],
)
def test_rejected_samples_that_came_after_the_end_are_said_once(late: int, said: str) -> None:
    rows = dict(
        status_text.status_rows(made({"samples": {"rejected": 704}, "refused": {"late": late}}))
    )
    assert rows["samples"].endswith(f"inserted, {said}")
    assert "704" not in rows.get("refused", "")


def test_a_line_says_who_waits_for_what() -> None:
    assert status_text.status_line(replace(STATUS, waits="learner waits: 3 of 1,000")).endswith(
        " | learner waits: 3 of 1,000"
    )
    limited = made({**SAID, "waits": None, "limiter": {"reason": "actors wait"}})
    assert status_text.wait_reason(limited) == "actors wait"


def test_a_line_names_what_an_actor_died_of_until_its_manager_has_left() -> None:
    manager = {"id": "m", "actors": [{"id": 0, "alive": False, "error": "KeyError: 'x'"}]}
    assert status_text.status_line(made({"managers": [manager]})).endswith(
        "error: m/0: KeyError: 'x'"
    )
    after = made({"managers": [{**manager, "left": True}]})
    assert "KeyError" not in status_text.status_line(after)
    assert status_text.actor_errors(after) == ["m/0: KeyError: 'x'"]  # what the summary tells


def test_an_empty_status_is_shown_with_dashes() -> None:
    assert "opts -" in status_text.status_line(Status())
    assert dict(status_text.status_rows(Status()))["returns"] == "no evaluation yet"
    assert status_text.summary_lines(Status(run_id="a"), "runs/x")[0] == "ended"
    for status in (Status(), Status(run_id="a", phase="starting", exit_reason="interrupted")):
        said = status_text.summary_lines(status, "runs/x")
        assert said[0] == "stopped before the training began: there is nothing new to save"


@pytest.mark.parametrize(
    ("path", "typed"), [("runs/a", "runs/a"), ("my runs/a b", "'my runs/a b'"), ("-a", "./-a")]
)
def test_what_comes_next_can_be_copied_into_a_shell(path: str, typed: str) -> None:
    said = status_text.summary_lines(made({**SAID, "eval": {"best_version": 3}}), path)
    assert f"  next     vedette eval {typed}   or   vedette report {typed}" in said


def test_a_status_of_wrong_types_breaks_nothing() -> None:
    strange = made(
        {"samples": 3, "managers": [1, {"actors": "x"}], "eval": None, "opt_steps": True}
    )
    assert status_text.status_rows(strange)
    assert status_text.status_line(strange)


def test_rows_tell_what_was_turned_away_where_anything_was() -> None:
    assert "refused" not in dict(status_text.status_rows(STATUS))
    turned_away = made({**SAID, "garbage": 3, "refused": {"keys": 2, "ids": 0}})
    assert dict(status_text.status_rows(turned_away))["refused"] == "3 invalid messages, 2 keys"


def test_rows_count_failures_of_environments_and_actors_where_there_were_any() -> None:
    none = made({**SAID, "managers": [{"actors": [{}]}]})
    assert "failures" not in dict(status_text.status_rows(none))
    managers = [
        {"failures": 1_200, "actors": [{"restarts": 2}, {"restarts": 1}]},
        {"failures": 34, "actors": [{}]},
    ]
    failed = dict(status_text.status_rows(made({**SAID, "managers": managers})))
    assert failed["failures"] == "1,234 of environments, made again; 3 of actors, started again"
    managers = [{"failures": 1, "actors": [{}]}]
    one = dict(status_text.status_rows(made({**SAID, "managers": managers})))
    assert one["failures"] == "1 of environments, made again"


def test_the_rate_of_steps_counts_no_sample_of_hindsight() -> None:
    samples = {**SAID["samples"], "inserted": 200_000}
    rates = {**SAID["rates"], "samples_per_sec": 500.0}
    told = dict(status_text.status_rows(made({**SAID, "samples": samples, "rates": rates})))
    assert told["steps"].startswith("40,000 environment (100/s), 1,200 optimization (5.2/s), 33.3")
    begins = dict(status_text.status_rows(made({**SAID, "opt_steps": 0})))
    assert "for each" not in begins["steps"]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (None, "-"),
        (7, "7"),
        (99_999, "99,999"),
        (123_456, "123k"),
        (999_600, "1M"),
        (1_234_567, "1.23M"),
        (123_456_789_012, "123G"),
    ],
)
def test_short_numbers_have_seven_characters_at_most(number: float | None, said: str) -> None:
    assert format_short(number) == said


def test_progress_counts_only_what_stops_the_run() -> None:
    assert stop_conditions.stop_progress(STATUS) == [("optimization steps", 1200.0, 2400.0)]


def test_lines_come_every_few_seconds() -> None:
    clock = [0.0]
    out = io.StringIO()
    view = LineView(every_s=5.0, out=out, now=lambda: clock[0])
    for clock[0] in (1.0, 5.0, 6.0, 9.9, 10.0):
        view.show(STATUS)
    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["0:00:05", "0:00:10"]


def test_a_run_that_has_not_begun_says_what_it_waits_for() -> None:
    starting = Status(waits="the learner starts: its process loads")
    assert status_text.status_line(starting) == "the learner starts: its process loads"
    out = io.StringIO()
    view = LineView(every_s=0.0, out=out, now=lambda: 0.0)
    view.show(starting)
    assert "its process loads" in out.getvalue()


def test_a_pipe_gets_lines_and_a_terminal_a_live_view(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(view_for("", Terminal()), TerminalView)
    assert isinstance(view_for("", io.StringIO()), LineView)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(view_for("", Terminal()), LineView)


def test_the_summary_says_why_it_ended_and_what_to_do_next() -> None:
    found = replace(STATUS.eval, reached_episodes=100)
    ended = replace(STATUS, exit_reason="target_return", eval=found)
    said = status_text.summary_lines(ended, "runs/x")
    assert said[0].startswith("solved")
    assert said[0].endswith("confirmed on 100 fresh episodes")
    assert any("vedette eval runs/x" in line for line in said)
    assert said[-1].endswith("vedette report runs/x")


def test_one_line_of_the_summary_says_why_the_last_model_has_no_evaluation() -> None:
    why = "the last evaluation was stopped"
    stopped = replace(STATUS, exit_reason="max_opts", unevaluated=why)
    for summary in (stopped, replace(stopped, eval=Eval())):
        lines = [line for line in status_text.summary_lines(summary, "x") if "returns" in line]
        assert len(lines) == 1
        assert lines[0].endswith(f", {why}")
        assert "no evaluation" not in lines[0]


def test_a_stop_leaves_what_is_known_of_evaluations_that_failed() -> None:
    """The last model of a run that is stopped is not evaluated, and that is no reason."""
    why = "manager a cannot evaluate: no display"
    ended = stop_conditions.ended_status(replace(STATUS, unevaluated=why), "interrupted", "")
    assert ended.unevaluated == why
    assert stop_conditions.ended_status(ended, "max_opts", "another").unevaluated == "another"


def test_a_run_without_an_optimization_step_has_nothing_to_report() -> None:
    stopped = Status(run_id="a", opt_steps=0, exit_reason="interrupted", phase="done")
    assert status_text.summary_lines(stopped, "runs/x")[-1] == "  run      runs/x"


def test_the_time_is_the_learners_or_else_the_trainings() -> None:
    assert stop_conditions.elapsed_seconds(Status(seconds=3.0, time=Time(training_s=2.0))) == 3
    assert stop_conditions.elapsed_seconds(Status(time=Time(training_s=65.0))) == 65.0
    assert (
        status_text.run_headline(Status(run_id="a", epoch=1, seconds=3725.0))
        == "run a, epoch 1, trained 1:02:05"
    )


def test_a_run_of_several_starts_was_trained_for_all_of_them() -> None:
    status = Status(run_id="a", epoch=3, seconds=2.0, run_seconds=3725.0)
    assert stop_conditions.elapsed_seconds(status) == 2.0  # that of stop.max_seconds
    assert status_text.run_headline(status) == "run a, epoch 3, trained 1:02:05"
    ended = replace(status, exit_reason="max_opts", phase="done", opt_steps=10)
    assert status_text.summary_lines(ended, "r")[0].startswith("done after 1:02:05 of training")


def test_rates_are_of_the_last_seconds_and_of_a_run_that_has_ended_the_mean() -> None:
    status = Status(
        env_steps=1000,
        opt_steps=500,
        seconds=4.0,
        run_seconds=10.0,
        samples=Samples(inserted=1000),
        rates=Rates(samples_per_sec=300.0, opt_steps_per_sec=70.0),
    )
    assert dict(status_text.status_rows(status))["steps"].startswith(
        "1,000 environment (300/s), 500 optimization (70/s)"
    )
    ended = replace(status, exit_reason="max_opts")
    assert dict(status_text.status_rows(ended))["steps"].startswith(
        "1,000 environment (mean 100/s), 500 optimization (mean 50/s)"
    )


def test_the_averages_in_the_log_are_over_all_starts_of_the_run() -> None:
    resumed = replace(
        STATUS,
        exit_reason="max_env_steps",
        seconds=10.0,
        run_seconds=2000.0,
        time=Time(training_s=5.0),
        rates=Rates(opt_steps_per_sec_mean=7.0),
    )
    lines = status_text.final_report_lines(resumed)
    assert lines[:3] == [
        "run a1 ended: max_env_steps",
        "env_steps/sec, opt_steps/sec, duration",
        "20.0, 0.6, 2000.0 s",
    ]
    assert lines[3:5] == ["actor_id, env_steps", "host-1/0, 0"]
    assert status_text.final_report_lines(Status(exit_reason="interrupted"))[2] == "-, -, - s"


def test_a_confirmation_is_said_once() -> None:
    evaluation = Eval(
        return_mean=499.6,
        return_std=1.0,
        version=1056,
        env_steps=9000,
        best_return_mean=499.5,
        best_version=1056,
        fresh_return_mean=499.5,
        fresh_episodes=250,
        reached_return_mean=499.5,
        reached_version=1056,
        reached_episodes=250,
    )
    text = dict(status_text.status_rows(Status(eval=evaluation)))["returns"]
    assert text == (
        "evaluation 499.6 ± 1.0 at 9,000 env steps, best 499.5 at version 1,056, "
        "confirmed on 250 fresh episodes"
    )
    ended = status_text.summary_lines(Status(seconds=65.0), "x")[0]
    assert ended == "ended after 0:01:05 of training"


def test_the_last_checkpoint_has_a_row_and_one_that_fails_is_in_the_line() -> None:
    assert "saved" not in dict(status_text.status_rows(STATUS))
    why = "no checkpoint can be written (No space left on device), and there is none"
    saved = replace(STATUS, checkpoint=Checkpoint(1200, 90.0), waits=why)
    assert dict(status_text.status_rows(saved))["saved"] == (
        "1,200 optimization steps, 0:01:30 ago"
    )
    assert status_text.status_line(saved).endswith(f" | {why}")


def test_a_drawn_view_shows_that_a_checkpoint_fails() -> None:
    out = io.StringIO()
    failing = replace(STATUS, checkpoint=Checkpoint(1200, 90.0, 3, "full"), waits="no checkpoint")
    print_once(failing, out)
    assert "saved    1,200 optimization steps, 0:01:30 ago" in out.getvalue()
    assert "waits    no checkpoint" in out.getvalue()


def test_what_is_being_confirmed_is_said_until_the_end() -> None:
    said = "version 9 is at the target (480.0): fresh evaluation 2 of 5 is played"
    running = Status(eval=Eval(return_mean=480.0, version=9, confirming=said))
    assert said in dict(status_text.status_rows(running))["returns"]
    ended = replace(running, exit_reason="target_return")
    assert said not in dict(status_text.status_rows(ended))["returns"]


def test_commands_that_are_there_to_be_copied_have_their_path_in_quotes() -> None:
    lines = status_text.summary_lines(STATUS, "runs/été 1")
    assert lines[-1].endswith("vedette eval 'runs/été 1'   or   vedette report 'runs/été 1'")
    assert "  run      runs/été 1" in lines
    assert status_text.summary_lines(STATUS, "runs/a")[-1].endswith("vedette report runs/a")
