"""The lines for people of benchmarks that stand beside other libraries."""

from typing import Any

from bench.lines import peer_lines, remote_replay_lines, replay_peer_lines, sb3_lines


def spread(median: float) -> dict[str, float]:
    return {"median": median, "min": median / 2, "max": 2 * median}


def words(line: str) -> str:
    """Return a line without its alignment."""
    return " ".join(line.split())


def test_peers_have_their_rates_ours_beside_them_and_why_one_was_left_out() -> None:
    figures = {
        "unit": "env steps/s",
        "load": 1.26,
        "rates": {"vedette": [4000.0, 6000.0], "slow": [1000.0, 1000.0]},
        "left_out": {"Ray": "not installable: no wheel"},
    }
    head, ours, slow, left_out = peer_lines(figures)
    assert head == "env steps/s, load at the end 1.3"
    assert words(ours) == "vedette 5,000 (4,000 to 6,000) ours / theirs 1.00 (1.00 to 1.00)"
    assert words(slow) == "slow 1,000 (1,000 to 1,000) ours / theirs 5.00 (4.00 to 6.00)"
    assert left_out.split(maxsplit=1) == ["Ray", "not installable: no wheel"]


def test_rates_of_processor_time_are_compared_with_ours_of_processor_time() -> None:
    rates = {
        "vedette": [10.0],
        "vedette, of processor": [60.0],
        "slow": [5.0],
        "slow, of processor": [20.0],
    }
    figures = {"unit": "env steps/s", "load": 1.0, "rates": rates, "left_out": {}}
    ratios = [float(line.split()[-4]) for line in peer_lines(figures)[1:]]
    assert ratios == [1.0, 1.0, 2.0, 3.0]


def test_replays_have_a_line_for_each_operation_and_library() -> None:
    ours: dict[str, Any] = {"rows_per_s": spread(2000.0)}
    theirs = {"rows_per_s": spread(1000.0), "vedette_ratio": spread(2.0)}
    _, first, second = replay_peer_lines({"insert": {"vedette": ours, "cpprb": theirs}})
    assert words(first) == "insert vedette 2,000 (1,000 to 4,000)"
    assert words(second) == "insert cpprb 1,000 (500 to 2,000) 2.00 (1.00 to 4.00)"


def test_a_remote_replay_that_failed_says_so_and_one_not_here_says_why() -> None:
    measured = {
        "rounds": 1,
        "inserted_rows_per_s": spread(1000.0),
        "drawn_rows_per_s": spread(400.0),
        "vedette_inserted_ratio": spread(1.0),
        "vedette_drawn_ratio": spread(1.0),
    }
    figures = {
        "systems": {"vedette": measured, "queue": {"rounds": 0}},
        "left_out": {"reverb": "not installable: python3.11 is not here"},
    }
    _, inserted, drawn, failed, left_out = remote_replay_lines(figures)
    assert inserted.split()[:3] == ["vedette", "inserted", "1,000"]
    assert drawn.split()[:3] == ["vedette", "drawn", "400"]
    assert failed.split() == ["queue", "failed"]
    assert left_out.endswith("python3.11 is not here")


def test_runs_to_the_solved_return_have_a_line_each_and_their_medians() -> None:
    run = {"seed": 3, "wall_s": 63.3, "env_steps": 6784, "solved": True}
    figures = {
        "runs": [{"what": "vedette", **run}, {"what": "stable-baselines3", **run, "solved": False}],
        "medians": {"wall_s": {"vedette": 63.3, "stable-baselines3": 63.3, "theirs_by_ours": 1.0}},
    }
    ours, theirs, medians = sb3_lines(figures)
    assert words(ours) == "vedette seed 3 63.3 s 6,784 env steps solved"
    assert theirs.endswith("not solved")
    assert medians == "median wall_s: vedette 63.3   stable-baselines3 63.3   theirs by ours 1.0"
