"""A run that goes on from a checkpoint: the same optimization steps as if nothing had happened."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from every_agent import OF_SAMPLES, spaces_for  # of tests/support
from mutation import FunctionMutation  # of tests/support
from no_peers import NoPeers
from numpy.typing import NDArray
from starts import spec_of  # of tests/support

from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Agent, ModelInfo, ReplayBuffer
from vedette_rl.device.host_copy import Event, Reached, settled
from vedette_rl.device.loader import (
    DeviceLoader,
    PinnedLoader,
    SideStream,
    Tensors,
    make_loader,
)
from vedette_rl.envs.spaces import transition_dtype
from vedette_rl.errors import CheckpointError, DivergedError
from vedette_rl.recording.file_recorder import JsonlRecorder
from vedette_rl.replay.limiter import Limiter
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.ring import RingWriter
from vedette_rl.replay.uniform import UniformReplay
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.testing.inputs import sampled_transitions
from vedette_services.config import RunConfig
from vedette_services.learner.trainer.learner import Learner
from vedette_services.learner.trainer.process import open_replay
from vedette_services.learner.trainer.training_loop import DEVICE_ERRORS_DELAY, TrainingLoop
from vedette_services.net.addresses import Address
from vedette_services.run.directory import RunDirectory
from vedette_services.run.replay_layout import make_run_limiter, ring_dtype
from vedette_services.run.resume import load_checkpoint
from vedette_services.status.records import (
    EndedEvaluations,
    GatewayStatus,
    TrainerStatus,
    TrainingTime,
)
from vedette_services.status.status import Eval, Samples

ROWS = 600
BEFORE, AFTER = 23, 21

SPACES = {agent: spaces_for(agent) for agent in OF_SAMPLES}


def config_of(agent: str, *, prioritized: bool) -> RunConfig:
    return RunConfig.model_validate(
        {
            "env": {"id": "CartPole-v1"},
            "agent": {"name": agent, "hidden_sizes": [16, 16], "batch_size": 32},
            "replay": {"capacity": 500, "prioritized": prioritized, "beta_steps": 60},
            "learner": {"warmup_period": 100},
        }
    )


LoadBy = Callable[[ReplayBuffer, int, torch.device], DeviceLoader]


class Half:
    """One learner's half: its agent and its replay, and what the loop calls."""

    def __init__(
        self,
        root: Path,
        config: RunConfig,
        *,
        errors_delay: int = 1,
        load_by: LoadBy = make_loader,
    ) -> None:
        self.root = root
        self.load_by = load_by
        self.ends_at = 0
        self.config = config
        self.learning = TrainerStatus()
        self.errors: dict[str, Any] = {}
        self.errors_delay = errors_delay
        name = config.agent.name
        self.agent: Agent = agent_kind(name).build_agent(
            config.agent, SPACES[name], device="cpu", seed=3
        )
        address = Address.parse("127.0.0.1:20000")
        spec = spec_of(RunDirectory(root), "r", config, address)
        self.replay: ReplayBuffer = open_replay(spec, 1)
        self.checkpoints = Checkpoints(root / "checkpoints", keep=100)

    def resume(self) -> None:
        found = self.checkpoints.load_latest()
        assert found is not None
        self.agent.set_state(found.state["agent"])
        self.replay.set_state(found.state["replay"])
        self.errors = found.state["errors"]

    def train(self, max_opts: int) -> None:
        device = torch.device("cpu")
        loop = TrainingLoop(
            self.agent,
            self.replay,
            self.load_by(self.replay, 32, device),
            make_run_limiter(self.config),
            self.config.learner,
            self,
            learning=self.learning,
            max_opts=max_opts,
            samples_per_opt=32,
            errors=self.errors,
            errors_delay=self.errors_delay,
            tick_s=0.0,
        )
        self.learning = loop.run()

    def publish(self, agent: Agent) -> None: ...

    def record(self, record: dict[str, float], opt_steps: int) -> None: ...

    def flush(self, opt_steps: int) -> None: ...

    def tick(self, learning: TrainerStatus) -> str:
        return "interrupted" if 0 < self.ends_at <= learning.opt_steps else ""

    def save(self, agent: Agent, learning: TrainerStatus, errors: dict[str, Any]) -> None:
        state = {"agent": agent.get_state(), "replay": self.replay.get_state(), "errors": errors}
        self.errors = settled(errors)
        self.checkpoints.save(agent.opt_steps, settled(state), {})


def fill(root: Path, agent: str) -> None:
    """A replay of more rows than its capacity."""
    spaces = SPACES[agent]
    row = transition_dtype(spaces)
    ring = RingWriter.open(root / "replay", ring_dtype(row), 500, run_id="r")
    columns = sampled_transitions(spaces, ROWS, 5)
    ring.append({**columns, "version": 0, "manager": 0, "actor": 0}, ROWS)
    ring.commit(b"")
    ring.close()


def assert_same(one: Any, other: Any, path: str = "") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key, value in one.items():
            assert_same(value, other[key], f"{path}/{key}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), path
    else:
        assert np.array_equal(one, other), path


@pytest.mark.parametrize("prioritized", [False, True], ids=["uniform", "prioritized"])
@pytest.mark.parametrize("agent", OF_SAMPLES)
def test_after_a_resume_the_next_steps_are_bit_identical(
    agent: str, prioritized: bool, tmp_path: Path
) -> None:
    config = config_of(agent, prioritized=prioritized)
    fill(tmp_path / "run", agent)
    whole = Half(tmp_path / "run", config)
    whole.train(BEFORE)
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    again = Half(tmp_path / "again", config)
    again.resume()
    assert again.agent.opt_steps == BEFORE
    for half in (whole, again):
        half.train(BEFORE + AFTER)
    assert_same(whole.agent.get_state(), again.agent.get_state())
    assert_same(whole.replay.get_state(), again.replay.get_state())


@pytest.mark.parametrize("errors_delay", [1, DEVICE_ERRORS_DELAY])
def test_a_resume_at_any_step_goes_on_with_the_errors_under_way(
    errors_delay: int, tmp_path: Path
) -> None:
    config = config_of("dqn", prioritized=True)
    every_step = config.learner.model_copy(update={"save_interval": 1})
    config = config.model_copy(update={"learner": every_step})
    fill(tmp_path / "run", "dqn")
    whole = Half(tmp_path / "run", config, errors_delay=errors_delay)
    whole.train(40)
    for step in range(1, 40, 3):
        place = tmp_path / str(step)
        shutil.copytree(tmp_path / "run" / "replay", place / "replay")
        saved = tmp_path / "run" / "checkpoints" / str(step)
        shutil.copytree(saved, place / "checkpoints" / str(step))
        again = Half(place, config, errors_delay=errors_delay)
        again.resume()
        assert len(again.errors) == min(step, errors_delay)
        again.train(40)
        assert_same(whole.agent.get_state(), again.agent.get_state(), str(step))
        assert_same(whole.replay.get_state(), again.replay.get_state(), str(step))
        assert_same(whole.errors, again.errors, str(step))


class HostStream(SideStream):
    """Copies at once, to the host's own memory."""

    def __init__(self) -> None: ...

    def pin(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(array.copy())

    def room(self, pinned: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(pinned)

    def copy(self, pinned: Tensors, copies: Tensors) -> Event:
        for name, tensor in pinned.items():
            copies[name].copy_(tensor)
        return Reached()

    def hand_over(self, copied: Event) -> None: ...


def load_ahead(replay: ReplayBuffer, batch_size: int, device: torch.device) -> DeviceLoader:
    """Pinned memory's loader, which draws a batch ahead."""
    return PinnedLoader(replay, batch_size, HostStream())


def goes_on_with_a_batch_ahead(root: Path) -> None:
    """Resume at every save, and stop at every step."""
    config = config_of("dqn", prioritized=True)
    every_third = config.learner.model_copy(update={"save_interval": 3})
    config = config.model_copy(update={"learner": every_third})
    fill(root / "run", "dqn")
    whole = Half(root / "run", config, load_by=load_ahead, errors_delay=4)
    whole.train(31)
    assert whole.agent.opt_steps == 31
    beyond = set()
    for step in range(1, 31, 2):
        place = root / str(step)
        shutil.copytree(root / "run" / "replay", place / "replay")
        saved = step - step % 3
        if saved:
            here = root / "run" / "checkpoints" / str(saved)
            shutil.copytree(here, place / "checkpoints" / str(saved))
        stopped = Half(place, config, load_by=load_ahead, errors_delay=4)
        if saved:
            stopped.resume()
        stopped.ends_at = step
        stopped.train(31)
        beyond.add(stopped.agent.opt_steps - step)
        again = Half(place, config, load_by=load_ahead, errors_delay=4)
        again.resume()
        again.train(31)
        assert_same(whole.agent.get_state(), again.agent.get_state(), str(step))
        assert_same(whole.replay.get_state(), again.replay.get_state(), str(step))
        assert_same(whole.errors, again.errors, str(step))
    assert beyond == {0, 1}, "the batch that is ahead, where there is one"


def test_no_state_has_a_batch_ahead(tmp_path: Path) -> None:
    goes_on_with_a_batch_ahead(tmp_path)


F = FunctionMutation
FAULTS_OF_A_BATCH_AHEAD = {
    "fetched in a step that saves": F(
        TrainingLoop, "_draw_ahead", "or _is_saved(self._config.save_interval, step)", ""
    ),
    "fetched in the last step": F(TrainingLoop, "_draw_ahead", "step == self._max_opts or ", ""),
    "dropped at a stop": F(TrainingLoop, "run", "self._opt(may_draw_ahead=False)", "break"),
    "drawn by the errors of another step": F(
        TrainingLoop, "_draw_ahead", "step + 1 - self._draw_delay", "step - self._draw_delay"
    ),
    "not drawn by itself": F(TrainingLoop, "_draw_ahead", "loader.draw_ahead()"),
}


@pytest.mark.parametrize("fault", FAULTS_OF_A_BATCH_AHEAD)
def test_a_fault_of_a_batch_ahead_is_found(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAULTS_OF_A_BATCH_AHEAD[fault].install(monkeypatch)
    with pytest.raises(AssertionError):
        goes_on_with_a_batch_ahead(tmp_path)


def test_torchs_own_generator_goes_on_where_the_checkpoint_was_made(tmp_path: Path) -> None:
    """Custom networks draw from it."""
    fill(tmp_path, "dqn")
    config = config_of("dqn", prioritized=False)
    config = config.model_copy(update={"stop": config.stop.model_copy(update={"max_opts": 12})})
    half = Half(tmp_path, config)
    (tmp_path / "checkpoints").mkdir()

    def learner(epoch: int) -> Learner:
        return Learner(
            config,
            RunDirectory(tmp_path),
            "r",
            epoch,
            spaces=SPACES["dqn"],
            open_replay=lambda: half.replay,
            lasting=True,
        )

    with torch.random.fork_rng():
        first = learner(1)
        torch.rand(5)
        last = first.train(NoPeers(), make_run_limiter(config))
        first.close(last)
        expected = torch.rand(5)
        torch.rand(7)
        learner(2)
        assert torch.equal(torch.rand(5), expected)


def test_a_restarted_trainer_has_the_time_that_is_left(tmp_path: Path) -> None:
    fill(tmp_path, "dqn")
    config = config_of("dqn", prioritized=False)
    stop = config.stop.model_copy(update={"max_opts": 10**6, "max_seconds": 60.0})
    config = config.model_copy(update={"stop": stop})
    half = Half(tmp_path, config)
    (tmp_path / "checkpoints").mkdir()
    ticks = itertools.count()
    learner = Learner(
        config,
        RunDirectory(tmp_path),
        "r",
        1,
        spaces=SPACES["dqn"],
        open_replay=lambda: half.replay,
        lasting=True,
        # those of earlier starts count for the run, and not for the limit
        trained=TrainingTime(start_s=59.0, earlier_s=500.0),
        clock=lambda: 0.001 * next(ticks),
    )
    last = learner.close(learner.train(NoPeers(), make_run_limiter(config)))
    assert last.exit_reason == "max_seconds"
    assert 60.0 <= last.trained.start_s < 62.0
    assert next(ticks) < 3000, "one second was left"
    assert last.trained.earlier_s == 500.0


def test_prioritized_replay_weighs_what_the_agent_learns_from_and_hears_its_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, "dqn")
    half = Half(tmp_path, config_of("dqn", prioritized=True))
    assert isinstance(half.replay, PrioritizedReplay)
    weights: list[torch.Tensor | None] = []
    opt = half.agent.opt

    def spied(batch: Any, given: torch.Tensor | None = None, *, record: bool = False) -> Any:
        weights.append(None if given is None else given.clone())
        return opt(batch, given, record=record)

    monkeypatch.setattr(half.agent, "opt", spied)
    half.train(40)
    last = weights[-1]
    assert last is not None
    assert last.shape == (32,)
    assert float(last.max()) == 1.0
    assert len(last.unique()) > 5
    masses = np.array(half.replay.tree.leaves[:500])
    assert len(np.unique(masses)) > 100, "every row drawn has a priority of its own"
    # The next trainer finds them, and draws by them.
    again = Half(tmp_path, half.config)
    again.resume()
    assert isinstance(again.replay, PrioritizedReplay)
    np.testing.assert_array_equal(again.replay.tree.leaves[:500], masses)


def test_replay_is_uniform_unless_told_otherwise(tmp_path: Path) -> None:
    fill(tmp_path, "dqn")
    half = Half(tmp_path, config_of("dqn", prioritized=False))
    assert isinstance(half.replay, UniformReplay)


def test_a_run_may_go_on_with_prioritized_replay_after_a_uniform_one(tmp_path: Path) -> None:
    fill(tmp_path, "dqn")
    Half(tmp_path, config_of("dqn", prioritized=False)).train(5)
    half = Half(tmp_path, config_of("dqn", prioritized=True))
    half.resume()
    half.train(10)
    assert half.agent.opt_steps == 10
    back = Half(tmp_path, config_of("dqn", prioritized=False))
    back.resume()
    assert back.agent.opt_steps == 10


def test_a_checkpoint_of_another_network_is_refused_with_the_fix(tmp_path: Path) -> None:
    """One of other hidden layers, as after a change that settings do not show."""
    config = config_of("dqn", prioritized=False)
    fill(tmp_path, "dqn")
    half = Half(tmp_path, config)
    half.save(half.agent, half.learning, {})
    wider = config.agent.model_copy(update={"hidden_sizes": (9, 9)})
    with pytest.raises(CheckpointError, match=r"another network.*q\.0.*--fresh --force") as error:
        Learner(
            config.model_copy(update={"agent": wider}),
            RunDirectory(tmp_path),
            "r",
            1,
            spaces=SPACES["dqn"],
            open_replay=lambda: half.replay,
            lasting=True,
        )
    assert "\n" not in str(error.value)


def test_a_checkpoint_that_is_not_finite_is_refused_with_the_fix(tmp_path: Path) -> None:
    """Versions before this one wrote them."""
    fill(tmp_path, "dqn")
    half = Half(tmp_path, config_of("dqn", prioritized=False))
    state = half.agent.get_state()
    for moment in state["adam"]["exp_avg"].values():
        moment.fill_(torch.nan)
    half.checkpoints.save(9, {"agent": state}, {})
    with pytest.raises(CheckpointError, match=r"adam/exp_avg/\S+ is not finite: .* remove it"):
        load_checkpoint(half.checkpoints, half.agent, "dqn")


class EndingPeers:
    """A run whose evaluator plays two models while the run ends."""

    def __init__(self) -> None:
        self.ended = EndedEvaluations()

    def play(self, version: int) -> None:
        self.ended = self.ended.with_added(Eval(version=version, env_steps=2 * version))

    def end_evaluation(self, exit_reason: str) -> None:
        self.play(20)
        self.play(30)

    def read_ended_evaluations(self) -> EndedEvaluations:
        return self.ended

    def read_status(self, *, fresh: bool = False) -> tuple[GatewayStatus, Eval]:
        seen = self.ended.newest[-1] if self.ended.count else Eval()
        return GatewayStatus(samples=Samples(100, 100), env_steps=100), seen

    def publish_status(self, status: TrainerStatus) -> None: ...

    def publish_model(self, model: ModelInfo) -> None: ...

    def end_production(self) -> None: ...

    def is_stopped(self) -> bool:
        return False

    def mark_turn(self) -> None: ...


def learner_with(recorder: str, directory: Path) -> Learner:
    config = config_of("dqn", prioritized=False)
    recorded = config.learner.model_copy(update={"recorders": (recorder,)})
    fill(directory, "dqn")
    half = Half(directory, config)
    (directory / "checkpoints").mkdir()
    return Learner(
        config.model_copy(update={"learner": recorded}),
        RunDirectory(directory),
        "r",
        1,
        spaces=SPACES["dqn"],
        open_replay=lambda: half.replay,
        lasting=True,
    )


ENDS: list[str] = []


class Ending(JsonlRecorder):
    """One that asks how the run has ended."""

    def __init__(self, run: Path) -> None:
        super().__init__(run / "records.jsonl")

    def name_end(self, end: Callable[[], str]) -> None:
        self._ask = end

    def close(self) -> None:
        ENDS.append(self._ask())
        super().close()


class Failing(EndingPeers):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def publish_model(self, model: ModelInfo) -> None:
        raise self.error


def test_recorders_are_told_how_a_run_ends(tmp_path: Path) -> None:
    ENDS.clear()
    for number, reason in enumerate(("max_opts", "interrupted")):
        learner = learner_with(f"{__name__}:Ending", tmp_path / str(number))
        learner._peers = EndingPeers()
        learner.tick(TrainerStatus())
        learner.close(TrainerStatus(phase="done", exit_reason=reason))
    for error in (DivergedError("loss is not finite", 3), KeyboardInterrupt()):
        learner = learner_with(f"{__name__}:Ending", tmp_path / type(error).__name__)
        learner._recorder.write({"x": 1.0}, 1)
        with pytest.raises(type(error)):
            learner.train(Failing(error), Limiter(0.0, 0, 0.0, 8))
    assert ENDS == ["max_opts", "interrupted", "failed", "interrupted"]


def test_each_evaluation_that_ends_while_the_run_ends_is_recorded(tmp_path: Path) -> None:
    learner = learner_with("jsonl", tmp_path)
    learner._peers = peers = EndingPeers()
    learner.tick(TrainerStatus())
    peers.play(10)
    learner.close(TrainerStatus(phase="done", exit_reason="max_opts"))
    lines = map(json.loads, (tmp_path / "records.jsonl").read_text().splitlines())
    played = [(line["step"], line["eval/version"]) for line in lines if "eval/version" in line]
    assert played == [(20, 10), (40, 20), (60, 30)]
