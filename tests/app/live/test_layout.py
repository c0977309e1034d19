"""The screen of a run, drawn for terminals of several sizes."""

import io
from dataclasses import replace
from typing import Any

import pytest
from fleets import ERROR, broken, fleet, full, gone, made, manager  # beside this file
from rich.console import Console

from vedette.live.fleet import Health, fleet_rows, fleet_summary
from vedette.live.layout import Screen, TimeSplit, TimeSplitTracker
from vedette_services.run.status import Status, Time
from vedette_services.run.status_text import actor_errors

SIZES = [(80, 24), (120, 40)]


def drawn(
    status: Status | None, width: int = 80, height: int | None = 24, **more: Any
) -> list[str]:
    """The lines of a screen, without colours."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    split = TimeSplitTracker().update(status) if status else None
    console.print(Screen("dqn on ALE/Pong-v5", status, split=split, height=height, **more))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # it is the StringIO above


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("count", [0, 1, 5, 100, 1000])
def test_it_fits_the_terminal_with_any_number_of_managers(
    width: int, height: int, count: int
) -> None:
    found = drawn(fleet([manager(number) for number in range(count)]), width, height)
    assert len(found) <= height
    assert max(map(len, found)) <= width
    text = "\n".join(found)
    for words in ("dqn on ALE/Pong-v5  training", "epoch 2, 1:02:05", "12.5 of 18", "lag"):
        assert words in text
    assert ("nobody has connected yet" in text) == (count == 0)


def test_the_way_to_the_target_has_a_bar_only_where_its_beginning_is_known() -> None:
    status = fleet([manager(0)])
    bare = next(line for line in drawn(status) if "12.5 of 18" in line).rstrip()
    assert bare == "goal     best evaluation 12.5 of 18"
    begun = next(line for line in drawn(status, first_return=0.0) if "12.5 of 18" in line)
    assert begun.index("best evaluation") > bare.index("best evaluation")


def test_one_manager_is_shown_with_its_actors_and_how_they_play() -> None:
    text = "\n".join(drawn(fleet([manager(0)])))
    assert "1 manager connected, 8 of 8 actors" in text
    assert "actor 7" in text
    assert "return 207.0 (100 episodes)" in text


def test_five_managers_are_all_shown_and_only_their_actors_in_trouble() -> None:
    found = drawn(fleet([manager(number) for number in range(4)] + [broken(manager(4))]))
    text = "\n".join(found)
    assert [f"host-00{number}" in text for number in range(5)] == [True] * 5
    assert [line.split()[:3] for line in found if line.startswith("  actor")] == [
        ["actor", "0", "down"]
    ]


def test_of_a_hundred_managers_the_worst_come_first_and_the_rest_are_counted() -> None:
    fine = [manager(number) for number in range(97)]
    status = fleet([*fine, full(manager(97)), broken(manager(98)), gone(manager(99))])
    found = drawn(status)
    names = [line.split()[0] for line in found if line.startswith("host-")]
    assert names[:4] == ["host-099", "host-098", "host-097", "host-000"]
    assert "silent for 0:02:05" in "\n".join(found)
    assert found[-1] == f"and {100 - len(names)} more managers: all well"


def test_what_is_wrong_with_the_hidden_managers_is_counted() -> None:
    found = drawn(fleet([gone(manager(n)) for n in range(90)] + [full(manager(90))]))
    assert found[-1].endswith("gone, 1 held back")


def test_an_error_of_many_actors_is_shown_once_and_the_wait_is_shown() -> None:
    status = fleet([broken(manager(n)) for n in range(3)] + [broken(manager(3), "OSError: x")])
    assert actor_errors(status) == [f"host-000/0 and 2 more: {ERROR}", "host-003/0: OSError: x"]
    said = "the learner waits: 3 of 10,000 warm-up samples, 4 managers connected"
    text = "\n".join(drawn(replace(status, waits=said)))
    assert said in text
    assert "host-003/0: OSError: x" in text


def test_a_wide_screen_writes_numbers_out_and_names_hosts() -> None:
    assert "4.12M produced" in "\n".join(drawn(fleet([manager(0)])))
    wide = "\n".join(drawn(fleet([manager(0)]), 120, 40))
    assert "4,123,456 produced" in wide
    assert "host-000.rack0.example" in wide


def test_without_a_height_every_manager_is_shown_and_of_a_few_every_actor() -> None:
    many = drawn(fleet([broken(manager(number)) for number in range(100)]), 120, None)
    assert sum(line.startswith("host-") for line in many) == 100
    assert sum(line.startswith("  actor") for line in many) == 100
    few = drawn(fleet([manager(number) for number in range(5)]), 120, None)
    assert sum(line.startswith("  actor") for line in few) == 40


def test_without_answers_the_last_screen_stays_with_the_time_since() -> None:
    found = drawn(fleet([manager(0)]), silent_s=65.0)
    assert "no answer for 0:01:05" in found[0]
    assert any("12.5 of 18" in line for line in found)
    assert "starting" in drawn(None)[0]
    assert "waiting for the learner" in drawn(None, silent_s=5.0)[0]


def test_managers_have_a_health() -> None:
    restarted = manager(5)
    restarted["actors"][0]["restarts"] = 1
    judged = {
        line.name: line.health
        for line in fleet_rows(
            fleet(
                [
                    manager(0),
                    full(manager(1)),
                    broken(manager(2)),
                    gone(manager(3)),
                    gone(manager(4), left=True),
                    restarted,
                    {**manager(6), "last_seen_s": 4.0},
                    {**manager(7), "state": "draining"},
                ]
            )
        )
    }
    assert list(judged.values()) == sorted(judged.values(), reverse=True)
    assert judged == {
        "host-000": Health.WELL,
        "host-001": Health.HELD_BACK,
        "host-002": Health.TROUBLE,
        "host-003": Health.GONE,
        "host-004": Health.LEFT,
        "host-005": Health.RESTARTED,
        "host-006": Health.HELD_BACK,
        "host-007": Health.HELD_BACK,
    }


def test_actors_that_are_not_up_yet_are_no_trouble() -> None:
    new = manager(0)
    new["actors"] = [{**one, "alive": False, "env_steps": 0} for one in new["actors"]]
    assert fleet_rows(fleet([new]))[0].health == Health.RESTARTED
    text = "\n".join(drawn(fleet([new])))
    assert "8 starting" in text
    assert "down" not in text


def test_the_fleet_is_counted_in_a_line() -> None:
    status = fleet([manager(0), broken(manager(1)), gone(manager(2)), gone(manager(3), left=True)])
    assert fleet_summary(status) == (
        "2 managers connected, 1 gone, 1 left, 15 of 16 actors, 4 restarts"
    )


def test_a_status_of_wrong_types_is_drawn() -> None:
    strange = {"managers": [1, {"actors": "x", "window": 3, "id": 5}], "time": 3, "eval": None}
    assert drawn(made({**strange, "stop": {"target_return": 3.0}}))


def test_time_is_split_over_the_last_seconds() -> None:
    watch = TimeSplitTracker(window_s=10.0)
    spent = Time(optimizing_s=10.0, sampling_s=5.0, waiting_s=80.0)
    first = watch.update(Status(epoch=1, seconds=100.0, time=spent))
    assert first == TimeSplit(
        waiting=pytest.approx(0.8),
        sampling=pytest.approx(0.05),
        optimizing=pytest.approx(0.1),
        other=pytest.approx(0.05),
    )
    later = Time(optimizing_s=17.0, sampling_s=7.0, waiting_s=80.0)
    assert watch.update(Status(epoch=1, seconds=110.0, time=later)) == TimeSplit(
        waiting=0.0,
        sampling=pytest.approx(0.2),
        optimizing=pytest.approx(0.7),
        other=pytest.approx(0.1),
    )


def test_the_time_split_starts_again_with_a_new_epoch() -> None:
    watch = TimeSplitTracker()
    spent = Time(optimizing_s=10.0, sampling_s=0.0, waiting_s=0.0)
    watch.update(Status(epoch=1, seconds=100.0, time=spent))
    found = watch.update(Status(epoch=2, seconds=20.0, time=spent))
    assert found is not None
    assert found.optimizing == pytest.approx(0.5)
    assert watch.update(Status(epoch=2)) is None
