"""The command line as functions, on one small run."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vedette
from vedette import api
from vedette.live import LineView
from vedette_rl.core import Record
from vedette_rl.recording import CsvRecorder, TeeRecorder
from vedette_services.actors.outbox.settings import OutboxSettings
from vedette_services.errors import (
    ArgumentError,
    KeysError,
    NotARunError,
    NotInRunError,
    RunOverError,
    SettingError,
    UsageError,
)
from vedette_services.run.learner_location import find_learner
from vedette_services.run.outcome import read_summary

SMALL = {
    "agent": {"name": "dqn", "hidden_sizes": [16], "batch_size": 8},
    "learner": {"warmup_period": 64, "eval_interval": 40, "record_agent_info_interval": 10},
    "actors": {"count": 1, "envs_per_actor": 4, "n_buffer": 16},
    "evaluation": {"episodes": 2},
    "stop": {"max_opts": 60},
}


class BrokenRecorder(TeeRecorder):
    """Fails in its first record, and when it is closed."""

    def __init__(self, run: Path) -> None:
        super().__init__()

    def write(self, record: Record, step: int) -> None:
        raise ValueError("it cannot write")

    def close(self) -> None:
        raise ValueError("it cannot close")


def test_the_error_of_a_recorder_is_not_hidden_by_another_one_at_its_end(tmp_path: Path) -> None:
    learner = {**SMALL["learner"], "recorders": [f"{__name__}:BrokenRecorder", "jsonl"]}
    with pytest.raises(Exception, match="it cannot write") as failed:
        api.train(env="CartPole-v1", out=tmp_path, in_process=True, **{**SMALL, "learner": learner})
    said = [str(failed.value), *getattr(failed.value, "__notes__", ())]
    assert any("it cannot close" in text for text in said)
    assert "config" in (tmp_path / "records.jsonl").read_text()


def test_a_recorder_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    learner = {**SMALL["learner"], "recorders": ["csv", "jsonl", "csv"]}
    with pytest.raises(UsageError, match=r"learner.recorders: names csv more than once") as refused:
        api.train(env="CartPole-v1", out=tmp_path, in_process=True, **{**SMALL, "learner": learner})
    assert """set 'learner.recorders=["csv", "jsonl"]'""" in str(refused.value)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("api") / "run"
    result = api.train(env="CartPole-v1", out=out, in_process=True, **SMALL)
    assert result.summary["exit_reason"] == "max_opts"
    return result.run


def test_a_result_evaluates_acts_and_reports(run: Path) -> None:
    result = vedette.train(out=run, in_process=True)  # over: it trains no further
    assert (result.run, result.exit_reason) == (run, "max_opts")
    assert result.best_return == result.summary.eval.best_return_mean
    assert str(result).startswith("done")
    assert repr(result) == f"Result(run={str(run)!r}, max_opts, best_return={result.best_return})"
    assert result.evaluate(episodes=1) == api.evaluate(run, episodes=1)
    action = result.load_policy(checkpoint="latest").act(
        {"obs": np.zeros((1, 4), np.float32)}, explore=False
    )
    assert action.shape == (1,)
    assert [*result.curves()] == [*api.curves(run)]
    assert result.report() == run / "report.html"


def test_a_run_is_evaluated_on_other_episodes_than_its_own_evaluations_played(run: Path) -> None:
    found = api.evaluate(str(run))
    assert (found.episodes, found.seed) == (2, 1_010_000)
    assert (found.selected, found.fresh_seeds) == (True, True)
    own = api.evaluate(str(run), seed=10_000)
    assert own.return_mean == api.Result(read_summary(run), run).best_return
    last = api.evaluate(run, checkpoint="latest", episodes=1, seed=3)
    assert (last.version, last.episodes, last.seed) == (60, 1, 3)


def test_an_evaluation_is_recorded_as_a_video(run: Path, tmp_path: Path) -> None:
    api.evaluate(run, episodes=1, video=tmp_path / "best.gif")
    assert (tmp_path / "best.gif").read_bytes()[:3] == b"GIF"


def test_a_policy_is_exported_and_acts(run: Path, tmp_path: Path) -> None:
    version = api.export_policy(run, tmp_path / "policy.npz")
    assert version in (40, 60)
    action = api.load_policy(tmp_path / "policy.npz").act(
        {"obs": np.zeros((1, 4), np.float32)}, explore=False
    )
    assert action.shape == (1,)


def test_a_path_that_begins_with_a_tilde_is_in_the_users_home_in_every_function(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "mine.toml").write_text("no_such_key = 1")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(here)

    assert api.train(out="~/run", in_process=True).run == tmp_path / "run"
    assert api.evaluate("~/run", episodes=1, video="~/first.gif").episodes == 1
    assert (tmp_path / "first.gif").exists()
    assert api.export_policy("~/run", Path("~/policy.npz")) > 0
    assert api.evaluate("~/policy.npz", episodes=1).episodes == 1
    assert api.load_policy("~/policy.npz") is not None
    assert api.curves("~/run").keys() == api.curves(run).keys()
    assert api.report("~/run", out="~/page.html") == tmp_path / "page.html"
    assert api.Result(read_summary(run), run).report("~/again.html") == tmp_path / "again.html"
    CsvRecorder("~/records.csv").close()
    assert (tmp_path / "records.csv").exists()
    OutboxSettings("~/outbox").open().close()
    assert (tmp_path / "outbox").is_dir()

    # The error of each names the place in the home.
    where = re.escape(str(tmp_path))
    with pytest.raises(SettingError, match=f"{where}/mine.toml: no_such_key"):
        api.train("~/mine.toml", out="~/other")
    with pytest.raises(UsageError, match=f"{where}/run"):
        api.train_seeds(1, out="~/run", env="CartPole-v1")
    with pytest.raises(NotInRunError, match=where):
        api.export_replay("~/run", "~/replay.npz")
    with pytest.raises(NotARunError, match=where):
        api.push_policy("~/nowhere", "user/name")
    with pytest.raises(KeysError, match=where):
        api.status(keys="~/no-keys")
    with pytest.raises(KeysError, match=where):
        vedette.Actor(keys="~/no-keys")
    with pytest.raises(KeysError, match=where):
        vedette.Replay("~/loop", keys="~/no-keys", env="CartPole-v1", agent="dqn")
    with pytest.raises(RunOverError, match=where):
        find_learner("@~/run")
    assert not [*here.iterdir()]


def test_its_curves_and_its_events_are_there(run: Path) -> None:
    curves = api.curves(run)
    assert curves["train/loss"].steps[-1] == 60
    least, most = (curves[f"eval/{name}_reward"].values for name in ("min", "max"))
    assert (least <= curves["eval/mean_reward"].values).all()
    assert (most >= curves["eval/mean_reward"].values).all()
    page = api.report(run)
    text = page.read_text("utf-8")
    for words in (
        "<td>joined</td><td>in-process</td>",
        "<td>epoch</td><td>trainer</td><td>epoch 1</td>",
        "<td>ended</td><td>learner</td><td>max_opts</td>",
    ):
        assert words in text, words


def test_what_cannot_be_done_is_an_error_that_says_so(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pdf: a policy is exported as onnx, safetensors, numpy"):
        api.export_policy(run, tmp_path / "x", format="pdf")
    with pytest.raises(UsageError, match="name a file in a folder that exists"):
        api.export_policy(run, tmp_path / "no" / "x")
    with pytest.raises(NotInRunError):
        api.export_replay(run, tmp_path / "replay.npz")
    with pytest.raises(NotARunError):
        api.report(tmp_path / "nowhere")
    assert api.status("127.0.0.1:27990", timeout_s=0.2) is None


@pytest.mark.slow
def test_seeds_are_trained_and_go_on_with_what_is_left(tmp_path: Path) -> None:
    first = api.train_seeds(1, out=tmp_path, env="CartPole-v1", in_process=True, **SMALL)
    heard: list[str] = []
    both = api.train_seeds(
        2, out=tmp_path, env="CartPole-v1", in_process=True, progress=heard.append, **SMALL
    )
    assert [*first.results] == ["seed-0"]
    assert [*both.results] == ["seed-0", "seed-1"]
    assert both.failed == {}
    assert "seed-0: over already" in heard[0]
    assert both.results["seed-1"].summary["opt_steps"] == 60
    assert both.report == tmp_path / "report.html"
    assert "2 runs of 1 configuration<" in both.report.read_text("utf-8")


def test_no_module_takes_the_place_of_a_public_name() -> None:
    modules = {path.stem for path in Path(vedette.__file__).parent.iterdir()}
    assert not modules & set(vedette.__all__)
    assert set(vedette.__all__) <= set(dir(vedette))
    assert all(getattr(vedette, name) is getattr(api, name) for name in vedette.__all__)
    ours = {
        name for name, part in vars(api).items() if getattr(part, "__module__", "") == api.__name__
    }
    assert {name for name in ours if not name.startswith("_")} <= set(vedette.__all__)


@pytest.mark.parametrize("episodes", [0, -3, 1.5, "2", True])
def test_an_evaluation_of_no_number_of_episodes_is_refused(run: Path, episodes: object) -> None:
    for evaluated in (
        lambda: vedette.evaluate(run, episodes=episodes),  # type: ignore[arg-type]  # it is wrong
        lambda: vedette.push_policy(run, "user/name", episodes=episodes),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=r"episodes=.*: a number of episodes from 1 on, or"):
            evaluated()


def test_a_checkpoint_is_named_by_its_number_too(run: Path) -> None:
    by_text = vedette.evaluate(run, episodes=1, checkpoint="60", seed=3)
    assert vedette.evaluate(run, episodes=1, checkpoint=60, seed=3) == by_text


def test_curves_of_what_is_no_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match="nosuch: there is no such folder; name the run's dir"):
        vedette.curves(tmp_path / "nosuch")
    with pytest.raises(NotARunError, match=r"not a run's directory: it has no run\.json"):
        vedette.curves(tmp_path)


def test_curves_statuses_and_results_are_short_in_a_console(run: Path) -> None:
    curve = vedette.curves(run)["train/loss"]
    assert repr(curve).startswith(f"Curve({len(curve.steps)} points, steps ")
    summary = vedette.train(out=run, in_process=True).summary
    assert repr(summary) == (
        f"Status({summary.run_id!r}, max_opts, opt_steps=60, env_steps={summary.env_steps})"
    )


def test_what_a_finished_run_does_not_take_is_said(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = LineView()
    again = vedette.train(out=run, in_process=True, progress=view).summary
    assert [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()] == [
        "already done: it has 60 of 60 optimization steps; raise stop.max_opts to go on"
    ]
    changed = vedette.train(
        out=run,
        in_process=True,
        progress=view,
        agent={"learning_rate": 0.5},
        seed=9,
        stop={"max_opts": 50},
    )
    assert changed.summary == again
    _, line = capsys.readouterr().out.splitlines()
    assert line.split("  ", 1)[1] == (
        "not applied, because the run is over: seed: 0 -> 9, agent.learning_rate: 0.004 -> 0.5"
    )


def test_a_policy_takes_lists_and_numbers_of_other_dtypes(run: Path, tmp_path: Path) -> None:
    api.export_policy(run, tmp_path / "policy.npz")
    policy = api.load_policy(tmp_path / "policy.npz")
    assert repr(policy) == "DqnPolicy(obs (4,))"
    row = [0.5, -1, 0, 1]
    expected = policy.act({"obs": np.array([row], np.float32)}, explore=False)
    for form in ([row], (tuple(row),), np.array([row]), np.array([[0.5, -1, 0, 1]], np.float64)):
        assert policy.act({"obs": form}, explore=False) == expected  # type: ignore[dict-item]  # lists
    for form, said in (
        ([["a", "b", "c", "d"]], "obs is float32, and could not convert string"),
        ([row, [1.0]], "rows of several lengths"),
        (row, r"got \(4,\); add a row axis"),
    ):
        with pytest.raises(vedette.SpaceLayoutError, match=said):
            policy.act({"obs": form}, explore=False)  # type: ignore[dict-item]  # it is wrong


def calls_that_may_import(allowed: Any) -> Iterator[Callable[[], Any]]:
    yield lambda: vedette.evaluate("run", allow_import=allowed)
    yield lambda: vedette.export_policy("run", "policy.npz", allow_import=allowed)
    yield lambda: vedette.export_replay("run", "rows.npz", allow_import=allowed)
    yield lambda: vedette.push_policy("run", "user/name", allow_import=allowed)
    yield lambda: vedette.load_policy("policy.npz", allow_import=allowed)
    yield lambda: vedette.train(env="CartPole-v1", allow_import=allowed)
    yield lambda: vedette.train_seeds(2, out="runs", env="CartPole-v1", allow_import=allowed)
    yield lambda: vedette.Replay("run", allow_import=allowed)
    yield lambda: vedette.Actor(allow_import=allowed)


@pytest.mark.parametrize(
    ("allowed", "said"),
    [
        ("my_env", "allow_import='my_env': it is one text; write allow_import=['my_env']"),
        (["a,b"], "allow_import: 'a,b' is no name of a package; write allow_import=['a', 'b']"),
        (["a.b"], "allow_import: 'a.b' is no name of a package; its package is a"),
        ([Path("a")], f"allow_import: {Path('a')!r} is no text; write a package's name"),
    ],
)
def test_each_function_refuses_names_that_no_package_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: Any, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for call in calls_that_may_import(allowed):
        with pytest.raises(ArgumentError) as refused:
            call()
        assert str(refused.value) == said
    assert list(tmp_path.iterdir()) == []
