"""The C client acts as numpy does and delivers every row once. It is built with sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import zmq

from vedette_protocol import topics
from vedette_protocol.codec import decode_up, encode
from vedette_protocol.messages import Ack, Batch, Report, Run, Stop
from vedette_protocol.model import pack_model, split_into_chunks
from vedette_protocol.schema import Schema
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces, column_bounds, transition_dtype
from vedette_services.run.replay_layout import batch_schema

CLIENT = Path(__file__).parents[2] / "clients" / "c"
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fsanitize=address,undefined"]
CARTPOLE = Spaces(gym.spaces.Box(-10, 10, (4,), np.float32), gym.spaces.Discrete(2))
BOX = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 5]), (2,), np.float32)
PENDULUM = Spaces(gym.spaces.Box(-8, 8, (3,), np.float32), BOX)
ROOM = Spaces(gym.spaces.Discrete(5), gym.spaces.MultiDiscrete([2, 3]))

Built = Callable[[str], Path]
Kept = dict[int, tuple[int, bytes]]
"""Rows and payload of the batches that a learner committed, by number."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("c")
    probe = folder / "probe.c"
    probe.write_text('#include <zmq.h>\nint main(void) { return !zmq_has("curve"); }\n')
    made = subprocess.run([compiler, *FLAGS, probe, "-o", folder / "probe", "-lzmq"], check=False)
    if made.returncode:
        pytest.skip("libzmq's header or a sanitizer is missing (apt-get install libzmq3-dev)")

    def build(source: str) -> Path:
        program = folder / Path(source).stem
        libraries = ["-lzmq", "-lpthread", "-lm"]
        files = [CLIENT.parents[1] / source, *sorted(CLIENT.glob("*.c"))]
        subprocess.run(
            [compiler, *FLAGS, f"-I{CLIENT}", *files, "-o", program, *libraries], check=True
        )
        return program

    return build


def make_run(agent: str, spaces: Spaces, settings: dict[str, Any]) -> tuple[Run, ModelInfo, Any]:
    """A run of this agent, weights drawn for its network, and its policy in numpy."""
    kind = agent_kind(agent)
    config = kind.config.model_validate({"name": agent, **settings})
    policy = kind.build_policy(config, spaces, ranks=np.array([0.5]), seed=0)
    rng = np.random.default_rng(0)
    arrays = {
        name: np.float32(rng.normal(size=shape)) for name, shape in policy.network.shapes.items()
    }
    model = ModelInfo(1, arrays)
    policy.sync_model(model)
    assert kind.describe is not None
    run = Run(
        run_id="run-1",
        epoch=1,
        learner=11,
        schema=batch_schema(transition_dtype(spaces), column_bounds(spaces), None),
        model=Schema.from_arrays(arrays),
        env={"reward_scale": 1.0, "reward_clip": 0.0},
        agent=config.model_dump(mode="json"),
        actors={},
        seed=1,
        batch_rows=16,
        batch_env_steps=64,
        policy=kind.describe(config, spaces) or {},
    )
    return run, model, policy


@pytest.mark.slow
def test_the_c_client_acts_greedily_as_numpy_does(built: Built, tmp_path: Path) -> None:
    program = built("tests/clients/act_once.c")
    normal = {"normalize_observations": True, "hidden_sizes": [16, 16]}
    cases: list[tuple[str, Spaces, dict[str, Any]]] = [
        ("dqn", CARTPOLE, {}),
        ("dqn", CARTPOLE, {"dueling": True, "hidden_sizes": [8, 16]}),
        ("dqn", ROOM, {}),
        ("iqn", CARTPOLE, {"hidden_sizes": [16, 16]}),
        ("sac", PENDULUM, {}),
        ("sac", PENDULUM, {**normal, "policy_architecture": "layer_norm"}),
        ("td3", PENDULUM, {**normal, "policy_architecture": "residual"}),
    ]
    for agent, spaces, settings in cases:
        run, model, policy = make_run(agent, spaces, settings)
        spaces.observation.seed(3)
        dtype = spaces.observation.dtype
        obs = np.array([spaces.observation.sample() for _ in range(20)], dtype)
        frames = [bytes(frame) for frame in encode(run)]
        row = pack_model(1, model.arrays, run.model)[8:]
        names = ("header", "payload", "row", "obs")
        for name, data in zip(names, (*frames, row, obs.tobytes()), strict=True):
            (tmp_path / name).write_bytes(data)
        done = subprocess.run(
            [program, *(tmp_path / name for name in names)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "refused" not in done.stdout, (agent, settings, done.stdout)
        expected = policy.act({"obs": obs}, explore=False).reshape(20, -1)
        got = np.array([line.split() for line in done.stdout.splitlines()], np.float64)
        np.testing.assert_allclose(
            got, expected, rtol=2e-4, atol=2e-4, err_msg=f"{agent} {settings}"
        )


@pytest.mark.slow
def test_the_c_client_refuses_run_messages_that_are_cut_or_changed(
    built: Built, tmp_path: Path
) -> None:
    program = built("tests/clients/act_once.c")
    run, model, _ = make_run("dqn", CARTPOLE, {"hidden_sizes": [4]})
    header, payload = (bytes(frame) for frame in encode(run))
    row = pack_model(1, model.arrays, run.model)[8:]
    rng = np.random.default_rng(5)
    (tmp_path / "header").write_bytes(header)
    (tmp_path / "row").write_bytes(row)
    (tmp_path / "obs").write_bytes(bytes(64))
    for trial in range(60):
        changed = bytearray(payload if trial % 3 else payload[: rng.integers(len(payload))])
        for _ in range(rng.integers(1, 4) if trial % 3 else 0):
            changed[rng.integers(len(changed))] = rng.integers(256)
        (tmp_path / "payload").write_bytes(changed)
        files = [tmp_path / name for name in ("header", "payload", "row", "obs")]
        done = subprocess.run([program, *files], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr  # no sanitizer found anything
        assert trial % 3 or "refused" in done.stdout


class ScriptedLearner:
    """A learner's sockets and ledger; it grants credit and keeps rows by sequence number."""

    def __init__(self, port: int, run: Run, model: ModelInfo, kept: Kept) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self.samples = self._context.socket(zmq.PULL)
        self.control, self.models = (self._context.socket(zmq.XPUB) for _ in range(2))
        for offset, socket in enumerate((self.samples, self.control, self.models)):
            socket.setsockopt(zmq.LINGER, 0)
            if offset:
                socket.setsockopt(zmq.XPUB_VERBOSE, 1)
            socket.bind(f"tcp://127.0.0.1:{port + offset}")
        self.run, self.model, self.kept = run, model, kept
        self.report: Report | None = None
        self.incarnations: set[int] = set()
        self.again = 0

    def close(self) -> None:
        self._context.destroy(linger=0)

    def serve(self, batches: int, *, limit: int, acks: bool = True, stop: bool = False) -> bool:
        """Until so many batches are kept, or the client is gone; False: neither within 20 s."""
        poller = zmq.Poller()
        for socket in (self.samples, self.control, self.models):
            poller.register(socket, zmq.POLLIN)
        for _ in range(4000):
            ready = dict(poller.poll(5))
            if self.control in ready:
                topic = self.control.recv()[1:]
                if topic.startswith(b"m/"):
                    self.control.send_multipart([topic, *encode(self.run)])
            if self.models in ready:
                self._send_model(self.models.recv()[1:])
            if self.samples in ready:
                self._receive()
            if acks and self.report is not None:
                self._acknowledge(limit)
            if stop:
                over = Stop("run-1", self.run.epoch, "test", final=True)
                self.control.send_multipart([topics.ALL, *encode(over)])
                if self.report is not None and self.report.state == "gone":
                    return True
            elif len(self.kept) >= batches:
                return True
        return False

    def _send_model(self, topic: bytes) -> None:
        if topic.startswith(b"m/"):
            body = pack_model(1, self.model.arrays, self.run.model)
            schema = self.run.model.hash
            for chunk in split_into_chunks("run-1", self.run.epoch, schema, body):
                self.models.send_multipart([topic, *encode(chunk)])

    def _receive(self) -> None:
        message = decode_up([bytes(frame) for frame in self.samples.recv_multipart()])
        if isinstance(message, Report):
            self.report = message
            self.incarnations.add(message.incarnation)
        elif isinstance(message, Batch):
            assert message.schema == self.run.schema.hash
            self.again += message.seq in self.kept
            batch = message.rows, bytes(message.payload)
            assert self.kept.setdefault(message.seq, batch) == batch, "a number means one batch"

    def _acknowledge(self, limit: int) -> None:
        assert self.report is not None
        first = next(n for n in range(len(self.kept) + 1) if n not in self.kept)
        extras = sum(1 << seq - first for seq in self.kept if seq > first)
        ack = Ack(
            *("run-1", self.run.epoch, self.run.learner, "c-1", self.report.incarnation),
            *(first, extras, 0, 0, limit, 1, 0),
        )
        self.control.send_multipart([topics.manager_topic("c-1"), *encode(ack)])


@pytest.fixture
def port() -> int:
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        found = socket.bind_to_random_port("tcp://127.0.0.1", 20_000, 30_000)
        socket.unbind(f"tcp://127.0.0.1:{found}")
    return found


@pytest.mark.slow
def test_the_c_client_delivers_every_row_once_to_a_learner_that_is_killed(
    built: Built, port: int
) -> None:
    program = built("clients/c/examples/cartpole.c")
    run, model, _ = make_run("dqn", CARTPOLE, {"n_step": 1})
    kept: Kept = {}
    learner = ScriptedLearner(port, run, model, kept)
    client = subprocess.Popen(
        [program, "127.0.0.1", str(port), "c-1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert learner.serve(20, limit=40)
        assert learner.serve(30, limit=40, acks=False)  # committed, and never acknowledged
        learner.close()
        del kept[28]  # a batch that the learner received and did not commit
        again = Run(**{f: getattr(run, f) for f in Run.__slots__} | {"epoch": 2, "learner": 12})
        learner = ScriptedLearner(port, again, model, kept)
        assert learner.serve(40, limit=40)
        assert max(kept) == 39, "nothing above the limit"
        assert learner.serve(60, limit=60)
        assert learner.serve(0, limit=10_000, stop=True)
        out, errors = client.communicate(timeout=20)
        assert client.returncode == 0, errors
        assert len(learner.incarnations) == 1
        assert sorted(kept) == list(range(len(kept)))
        report = learner.report
        assert report is not None
        rows = sum(check_rows(run.schema, *kept[seq]) for seq in kept)
        assert (report.produced, report.dropped, report.window_rows) == (rows, 0, 0)
        assert b"all settled" in out
    finally:
        client.kill()
        client.communicate()
        learner.close()


def check_rows(schema: Schema, rows: int, payload: bytes) -> int:
    """The number of a batch's rows, whose values are those of the schema and of CartPole."""
    columns = schema.views(payload, rows)
    schema.check_values(columns)
    assert (columns["reward"] == 1.0).all()
    assert (columns["n_steps"] == 1).all()
    return rows
