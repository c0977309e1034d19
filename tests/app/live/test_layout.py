"""The screen of a run, drawn for terminals of several sizes."""

import io
from dataclasses import replace
from typing import Any

import pytest
from fleets import ERROR, broken, fleet, full, gone, made, manager  # beside this file
from rich.console import Console

from vedette.live.fleet import Health, fleet_rows, fleet_summary
from vedette.live.layout import GLOSSARY, Screen
from vedette.live.progress import Progress, ProgressTracker
from vedette_services.status.status import Status
from vedette_services.status.text import actor_errors

SIZES = [(60, 24), (80, 24), (120, 40), (200, 60)]


def drawn(
    status: Status | None, width: int = 80, height: int | None = 24, **more: Any
) -> list[str]:
    """The lines of a screen, without colours."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    progress = ProgressTracker().update(status)[0] if status else Progress()
    progress = more.pop("progress", progress)
    console.print(Screen("dqn on ALE/Pong-v5", status, progress, height=height, **more))
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
    for words in (
        "dqn on ALE/Pong-v5  training",
        "epoch 2, " + "trained " * (width >= 80) + "1:02:05",
        "12.5 of 18",
        "lag",
    ):
        assert words in text
    assert ("nobody has connected yet" in text) == (count == 0)


def test_the_way_to_the_target_has_a_bar_only_where_its_beginning_is_known() -> None:
    status = fleet([manager(0)])
    bare = drawn(status, progress=Progress())
    assert [line.rstrip() for line in bare if "12.5 of 18" in line] == [
        "goal     best evaluation 12.5 of 18, 5.5 to go"
    ]
    begun = next(
        line for line in drawn(status, progress=Progress(first_return=0.0)) if "12.5 of 18" in line
    )
    assert begun.index("best evaluation") > bare[0].index("dqn") + 9


def test_the_returns_come_first_with_their_curves_and_the_trend() -> None:
    progress = Progress(evaluations=[0.0, 2.5, 5.0, 7.5, 10.25], rollouts=[1.0, 2.0])
    found = drawn(fleet([manager(0)]), progress=progress)
    assert found[1].startswith("returns  evaluation 10.2 ± 2.0  ▁")
    assert found[1].rstrip().endswith("█  rising +10.2")
    assert found[2].split()[:2] == ["actors", "203.5"]
    assert "▁" in found[2]
    assert "█" in found[2]


def test_the_curve_of_a_high_screen_has_several_lines_and_that_of_a_wide_one_more_columns() -> None:
    progress = Progress(evaluations=[float(number) for number in range(200)])
    high = drawn(fleet([manager(0)]), 120, 40, progress=progress)
    assert all("█" in line for line in high[1:4])
    narrow, wide = (
        sum(block in "▁▂▃▄▅▆▇█" for block in drawn(fleet([]), width, 24, progress=progress)[1])
        for width in (60, 200)
    )
    assert narrow >= 8
    assert wide > 100


def test_the_nearest_condition_comes_first_with_the_time_left() -> None:
    status = fleet([], stop={"max_opts": 100_000, "max_seconds": 7200.0})
    left_s = {"optimization steps": 5000.0, "seconds": 3475.0}
    goals = [
        line for line in drawn(status, 120, progress=Progress(left_s=left_s)) if "goal" in line
    ]
    assert [line.rstrip().split("  ")[-1].strip() for line in goals] == [
        "about 0:57:55 left, 3,725 of 7,200 seconds",
        "12,000 of 100,000 optimization steps",
    ]


def test_the_goals_fit_a_narrow_screen() -> None:
    progress = Progress(left_s={"seconds": 3475.0}, first_return=0.0)
    status = fleet([], stop={"max_seconds": 7200.0, "target_return": 18.0})
    goals = [line for line in drawn(status, 60, progress=progress) if "goal" in line]
    assert [line.split("  ")[-1].strip() for line in map(str.rstrip, goals)] == [
        "best 12.5 of 18, 5.5 to go",
        "about 0:57:55 left, 3,725 of 7,200 s…",
    ]


def test_without_a_target_the_best_evaluation_stands_beside_the_last() -> None:
    found = drawn(fleet([], stop={"max_opts": 100_000}), 120)
    assert "evaluation 10.2 ± 2.0, best 12.5 at version 10,000" in found[1]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_glossary_takes_the_place_of_the_managers_and_fits(width: int, height: int) -> None:
    status = fleet([manager(number) for number in range(100)])
    found = drawn(status, width, height, explain=True, hint="?: back")
    assert len(found) <= height
    assert max(map(len, found)) <= width
    text = "\n".join(found)
    assert all(meaning in text for meaning in GLOSSARY.values())
    assert "host-000" not in text
    assert found[-1].startswith("?: back")


def test_the_glossary_explains_words_that_are_on_the_screen() -> None:
    said = "actors wait: the learner must draw 5 more samples"
    progress = Progress(evaluations=[1.0, 2.0, 3.0, 4.0])
    status = replace(fleet([manager(0)], stop={"max_opts": 100_000}), waits=said)
    text = "\n".join(drawn(status, 120, 40, progress=progress))
    assert [term for term in GLOSSARY if term not in text] == []


def test_only_what_somebody_has_to_look_at_is_yellow() -> None:
    said = "actors wait: the learner must draw 5 more samples"
    well = replace(fleet([manager(0), full(manager(1))]), waits=said, managers_present=2)
    assert "yellow" not in styles(well)
    assert "yellow" in styles(replace(well, managers_present=0))
    assert "yellow" in styles(fleet([{**manager(0), "last_seen_s": 4.0}]))


def styles(status: Status) -> str:
    """The styles of a screen."""
    console = Console(file=io.StringIO(), width=120, color_system="standard", force_terminal=True)
    screen = Screen("", status, ProgressTracker().update(status)[0], height=40)
    return " ".join(str(segment.style) for segment in console.render(screen))


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


def test_a_manager_with_an_outbox_has_no_window_that_could_be_full() -> None:
    [row] = fleet_rows(fleet([{**full(manager(0)), "outbox": True}]))
    assert row.health is Health.WELL
    assert row.window == "1,020"


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


def test_before_a_run_begins_only_its_wait_is_shown() -> None:
    found = drawn(Status(waits="the learner starts: its process loads"))
    assert "starting" in found[0]
    assert [line.split()[0] for line in found[1:]] == ["waits", "fleet"]


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
        "host-006": Health.SILENT,
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
        "2 managers connected, 1 gone, 1 has left, 15 of 16 actors, 4 restarts"
    )


def test_a_status_of_wrong_types_is_drawn() -> None:
    strange = {"managers": [1, {"actors": "x", "window": 3, "id": 5}], "time": 3, "eval": None}
    assert drawn(made({**strange, "stop": {"target_return": 3.0}}))


def test_nobody_is_down_after_the_end() -> None:
    ended = manager(0, 1)
    ended["actors"][0]["alive"] = False
    assert any("down" in line for line in drawn(fleet([ended]), 100))
    assert not any("down" in line for line in drawn(fleet([ended], phase="done"), 100))


def test_the_wait_for_the_last_evaluation_is_shown_as_evaluating() -> None:
    status = fleet([manager(0)], phase="done", waits="the last evaluation: version 9 is played")
    lines = drawn(status, 100)
    assert "evaluating" in lines[0]
    assert any("waits    the last evaluation: version 9" in line for line in lines)
