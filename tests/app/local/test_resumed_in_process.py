"""A run in one process goes on exactly where its last start has ended."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from small_runs import config_of, trained  # beside this file
from starts import lines_of_start, train_in_process  # of tests/support

from vedette_rl.errors import CheckpointError
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.state_file import check_state
from vedette_services.config import RunConfig
from vedette_services.errors import ConfigError
from vedette_services.run.events import read_events


def test_the_accounting_of_a_run_that_has_ended_goes_on(tmp_path: Path) -> None:
    _, before = trained(config_of(), tmp_path)
    found = Checkpoints(tmp_path / "checkpoints", 3).load_latest()
    assert found is not None
    kept = found.meta["accounting"]
    assert kept["produced"] == kept["inserted"] == before["env_steps"]
    _, after = trained(config_of(stop={"max_opts": 110}), tmp_path)
    since = sum(actor["env_steps"] for actor in after["managers"][0]["actors"])
    assert since > 64
    assert after["env_steps"] == before["env_steps"] + since
    samples = after["samples"]
    assert samples["produced"] == samples["inserted"] == after["env_steps"]
    assert samples["lost"] == samples["in_flight"] == 0
    assert after["run_seconds"] == pytest.approx(before["run_seconds"] + after["seconds"])


def test_a_checkpoint_that_does_not_load_leaves_the_settings_as_they_were(tmp_path: Path) -> None:
    """Its network is another one: nothing in the settings says so before."""
    train_in_process(config_of(stop={"max_opts": 20}), tmp_path / "run")
    train_in_process(config_of(agent={"hidden_sizes": [9]}, stop={"max_opts": 30}), tmp_path / "9")
    (tmp_path / "9/checkpoints/30").rename(tmp_path / "run/checkpoints/30")
    files = [tmp_path / "run" / name for name in ("config.toml", "config.schema.json")]
    before = [file.read_bytes() for file in files]
    other = config_of(stop={"max_opts": 40}, evaluation={"seed": 7, "episodes": 2})
    with pytest.raises(CheckpointError, match="it is of another network"):
        train_in_process(other, tmp_path / "run")
    assert [file.read_bytes() for file in files] == before
    best, best_before = tmp_path / "run" / "best", tmp_path / "run" / "best-before"
    assert check_state(best)["seed"] != 7
    events, _ = read_events(tmp_path / "run/events.jsonl")
    assert not [event for event in events if event.kind == "changed"]
    with pytest.raises(ConfigError, match="it is of another network"):
        lines_of_start(config_of(), tmp_path / "run", in_process=True, new_replay=True)
    shutil.rmtree(tmp_path / "run/checkpoints/30")
    train_in_process(other, tmp_path / "run")
    assert check_state(best)["seed"] == 7
    assert check_state(best_before)["seed"] != 7


def prioritized(max_opts: int) -> RunConfig:
    return config_of(
        replay={"prioritized": True, "beta_steps": 100},
        learner={
            "eval_interval": 0,
            "flush_record_interval": 10,
            "recorders": ["csv", "jsonl"],
        },
        stop={"max_opts": max_opts},
    )


def test_a_resume_goes_on_with_the_replays_schedule_and_recorders_have_it(tmp_path: Path) -> None:
    first, _ = trained(prioritized(20), tmp_path)
    again, _ = trained(prioritized(35), tmp_path)
    assert isinstance(first.replay, PrioritizedReplay)
    assert isinstance(again.replay, PrioritizedReplay)
    assert first.replay.beta == pytest.approx(0.4 + 0.6 * 0.20)
    assert again.replay.beta == pytest.approx(0.4 + 0.6 * 0.35)
    assert again.replay.stats()["max_priority"] >= first.replay.stats()["max_priority"]
    schedule = {10: 0.46, 20: 0.52, 30: 0.58, 35: 0.61}
    lines = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    told = {line["step"]: line["priority/beta"] for line in lines if "priority/beta" in line}
    assert told == pytest.approx(schedule)
    with (tmp_path / "records.csv").open() as records:
        table = [row for row in csv.DictReader(records) if row.get("name") == "priority/beta"]
    assert {int(row["step"]): float(row["value"]) for row in table} == pytest.approx(schedule)


def test_the_target_is_compared_with_what_all_starts_have_confirmed(tmp_path: Path) -> None:
    _, before = trained(config_of(stop={"target_return": 1.0}), tmp_path)
    reached = before["eval"]["reached_return_mean"]
    assert reached is not None
    _, after = trained(config_of(stop={"target_return": reached - 0.5}), tmp_path)
    assert (after["exit_reason"], after["opt_steps"]) == ("target_return", before["opt_steps"])
