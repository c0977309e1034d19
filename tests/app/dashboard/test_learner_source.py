"""A remote learner's run, as far as its statuses tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
from served import FakeClient, fleet_status, serving

from vedette.dashboard import Dashboard, LearnerSource, sources
from vedette_services.errors import RefusedError
from vedette_services.status.status import ActorStatus, Eval, ManagerStatus, Status

Open = Callable[..., LearnerSource]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens a source with a list of answers; further ones are asked for by the tests."""
    monkeypatch.setattr(sources, "ASK_EVERY_S", 600.0)
    with ExitStack() as stack:

        def open_source(*answers: Status | Exception | None) -> LearnerSource:
            source = LearnerSource(FakeClient.of(*answers))
            stack.callback(source.close)
            return source

        yield open_source


def test_the_statuses_become_curves(opened: Open) -> None:
    source = opened(*(fleet_status(2, step) for step in (1, 2, 3)))
    source.ask()
    source.ask()
    record = source.record("learner")
    assert record.running
    assert record.title == "dqn on CartPole-v1"
    loss, inserted = record.curves["train/loss"], record.curves["samples_total"]
    assert loss.steps.tolist() == [100, 200, 300]
    assert loss.values.tolist() == [1, 1 / 2, 1 / 3]
    assert inserted.steps.tolist() == inserted.values.tolist() == [1000, 2000, 3000]
    evaluations = record.curves["eval/mean_reward"]
    assert evaluations.values.tolist() == [10, 20, 30]
    assert evaluations.steps.tolist() == [900, 1800, 2700]  # of the models that were played
    assert record.positions("train/loss")["env"].tolist() == [1000, 2000, 3000]


def test_an_evaluation_is_one_point_however_often_it_is_told(opened: Open) -> None:
    first = fleet_status(1, 1)
    source = opened(first, *(replace(first, env_steps=n, opt_steps=n) for n in (1100, 1200)))
    source.ask()
    source.ask()
    curves = source.record("learner").curves
    assert curves["eval/mean_reward"].steps.tolist() == [900]
    assert curves["samples_total"].steps.tolist() == [1000, 1100, 1200]


def test_what_fresh_episodes_have_brought_is_drawn_when_it_comes(opened: Open) -> None:
    first = fleet_status(1, 1)
    hit = replace(first.eval, return_mean=500.0, best_return_mean=10.0, version=7)
    fresh = replace(hit, fresh_return_mean=480.0, fresh_episodes=20, best_return_mean=480.0)
    source = opened(*(replace(first, eval=found) for found in (hit, hit, fresh, fresh)))
    for _ in range(3):
        source.ask()
    curves = source.record("learner").curves
    assert curves["eval/fresh_mean_reward"].values.tolist() == [480.0]
    assert curves["eval/fresh_mean_reward"].steps.tolist() == [900]
    assert curves["eval/mean_reward"].values.tolist() == [500.0]
    assert curves["eval/best_mean_reward"].values.tolist() == [10.0, 480.0]


def test_evaluations_that_are_only_shown_are_drawn_where_they_came(opened: Open) -> None:
    first = fleet_status(1, 1)
    told = [Eval(shown_return_mean=3.0, shown_version=v, shown_by="m") for v in (1, 1, 2)]
    steps = (1000, 1001, 1002)
    answers = [replace(first, eval=e, env_steps=n) for e, n in zip(told, steps, strict=True)]
    source = opened(*answers)
    for _ in range(2):
        source.ask()
    shown = source.record("learner").curves["eval/untrusted_mean_reward"]
    assert shown.steps.tolist() == [1000, 1002]


def test_the_fleets_changes_are_events(opened: Open) -> None:
    def manager(restarts: int) -> tuple[ManagerStatus, ...]:
        return (
            ManagerStatus("m", 1, "gpu-2", "running", actors=(ActorStatus(0, restarts=restarts),)),
        )

    source = opened(*(fleet_status(1, n, managers=manager(n - 1)) for n in (1, 2)))
    source.ask()
    events = [(event.kind, event.who, event.text) for event in source.record("learner").events]
    assert events == [
        ("started", "learner", ""),
        ("epoch", "trainer", "epoch 1"),
        ("joined", "m", "on gpu-2, 1 actor"),
        ("actor", "m/0", "restart 1"),
    ]


def test_another_run_at_the_address_begins_anew(opened: Open) -> None:
    source = opened(fleet_status(1, 5), fleet_status(1, 1, run_id="b" * 16))
    source.ask()
    assert source.record("learner").curves["train/loss"].steps.tolist() == [100]


def test_a_long_watch_takes_bounded_memory(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_POINTS_MAX", 8)
    source = opened(*(fleet_status(1, step) for step in range(1, 101)))
    for _ in range(99):
        source.ask()
    steps = source.record("learner").curves["train/loss"].steps.tolist()
    assert 4 <= len(steps) <= 8
    assert steps[-1] == 10_000
    assert steps == sorted(steps)


def test_silence_is_said_and_the_last_status_stays(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = opened(fleet_status(1, 1), None)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 75)
    source.ask()
    record = source.record("learner")
    assert not record.running
    assert record.notes == ("No answer from the learner 127.0.0.1:5555 for 0:01:15.",)
    assert record.summary.opt_steps == 100


def test_of_a_learner_on_another_host_no_videos_are_served(opened: Open) -> None:
    with serving(Dashboard(opened(fleet_status(1, 1)))) as served:
        for key in ("learner", "nothing", ""):
            assert served.get(f"/video?run={key}&name=best.gif").status == 404


def test_a_learner_that_is_not_there_yet_is_waited_for(opened: Open) -> None:
    source = opened(None, fleet_status(1, 1))
    with serving(Dashboard(source)) as served:
        first = served.get()
        assert "No answer from the learner 127.0.0.1:5555" in first.text
        source.ask()
        page = served.get(If_None_Match=first.headers["ETag"])
    assert "dqn on CartPole-v1" in page.text


def test_the_end_is_said_after_the_learner_has_gone(opened: Open) -> None:
    found = Eval(return_mean=480.0, version=200, reached_return_mean=478.0, reached_episodes=100)
    ended = fleet_status(1, 2, exit_reason="target_return", eval=found)
    source = opened(fleet_status(1, 1), ended, None)
    source.ask()
    source.ask()
    record = source.record("learner")
    assert record.state == "solved"
    said = "It is solved: the target return is reached, confirmed on 100 fresh episodes."
    assert record.notes == (said,)


def test_a_refusal_at_the_start_is_an_error(opened: Open) -> None:
    with pytest.raises(RefusedError, match="not listed"):
        opened(RefusedError("our key is not listed"))


def test_a_later_refusal_is_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "ASK_EVERY_S", 0.01)
    client = FakeClient([fleet_status(1, 1), RefusedError("our key is not listed any more")])
    source = LearnerSource(client)  # type: ignore[arg-type]  # it asks as one does
    wait_until(lambda: client.asked >= 3)
    assert source.record("learner").notes == ("our key is not listed any more",)
    source.close()


def test_a_count_too_large_for_a_curve_is_left_out(opened: Open) -> None:
    source = opened(*(fleet_status(1, 1, opt_steps=count) for count in (2**64, 2**63, 300)))
    source.ask()
    source.ask()
    record = source.record("learner")
    assert record.curves["train/loss"].steps.tolist() == [300]
    assert record.curves["samples_total"].steps.tolist() == [1000] * 3


def test_an_unreadable_status_is_on_the_page_and_the_next_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "ASK_EVERY_S", 0.01)
    client = FakeClient([fleet_status(1, 1), ValueError("odd"), ValueError("odd")])
    source = LearnerSource(client)  # type: ignore[arg-type]  # it asks as one does
    with closing(source):
        wait_until(lambda: client.asked > 3)
        [note] = source.record("learner").notes
        assert "is unreadable: ValueError: odd" in note
        client.answers.append(fleet_status(1, 7))
        wait_until(lambda: source.record("learner").summary.opt_steps == 700)
        assert "unreadable" not in source.record("learner").notes[0]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline


def test_a_hundred_managers_are_a_table_with_the_worst_first(opened: Open) -> None:
    source = opened(fleet_status(100))
    with serving(Dashboard(source)) as served:
        text = " ".join(served.get().text.split())
    assert "97 managers connected, 3 gone" in text
    table = text.partition("<h2>Actor managers</h2>")[2].partition("</table>")[0]
    rows = table.split("<tr")[2:]
    assert len(rows) == 100
    assert all('class="bad"' in row for row in rows[:7])
    assert not any('class="bad"' in row for row in rows[7:])
    assert "gone" in rows[0]
    assert "licence server" in rows[3]
    for cell in ("node-000.cluster.example.org", "8/8", "812", "10", "16 25%", "0.3 s", "40,000"):
        assert f">{cell}</td>" in table, cell
    assert "Actors wait: the learner must draw 64 more samples" in text
    assert "checkpoint at optimization step 100, 12 s ago" in text
