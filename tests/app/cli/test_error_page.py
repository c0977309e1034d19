"""The page of error messages: each made by a real command, with its words and its exit status.

Whoever changes a message changes it here, and reads it beside its neighbours. ``...`` stands for
what differs from place to place.
"""

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from configurations import configured

from vedette_rl.agents.registry import BUILT_IN
from vedette_services.config import write_config
from vedette_services.net.keys import make_keys

Run = Callable[..., tuple[int, str]]
FIXED = "fix the environment; VEDETTE_TRACEBACK=1 shows where"
QUITS = "its environment's code ended the process: SystemExit: ... (broken_envs.py:56, in step)"
ADDRESS = "write HOST or HOST:PORT, such as 127.0.0.1:5555"
PATH = "on Python's path or in this folder"
NAMES = f"known: {', '.join(BUILT_IN)}, or module:Name of your own"

ENVIRONMENTS = [
    (
        "run --env NoSuch-v9",
        "env.id: cannot make environment 'NoSuch-v9': no such environment is registered; one of "
        "your own is named module:MyEnv, its class, or module:Name-v0, if the module registers it",
    ),
    (
        "run --env CartPol-v1",
        "env.id: cannot make environment 'CartPol-v1': no such environment is registered; "
        "nearest: CartPole-v1, CartPole-v0, ...",
    ),
    (
        "run --env nopkg:X-v0",
        f"env.id: cannot make environment 'nopkg:X-v0': there is no module 'nopkg' {PATH}",
    ),
    (
        "run --env needs.py:X-v0",
        "env.id: 'needs.py:X-v0' names a file: write 'needs:X-v0', the module and what is in it",
    ),
    (
        "run --env ./sub/envs.py:X",
        "env.id: './sub/envs.py:X' names a file: write 'sub.envs:X', the module and what is in it",
    ),
    (
        "run --env /else/envs.py",
        "env.id: '/else/envs.py' names a file: write 'envs:MyEnv', the module and what is in it",
    ),
    (
        "run --env needs:X-v0",
        "env.id: cannot make environment 'needs:X-v0': module 'needs' needs 'not_there', which is "
        "not installed",
    ),
    (
        "run --env a:b:c/",
        "env.id: 'a:b:c/' is not of the form Name-v0, module:Name-v0 or module:MyEnv",
    ),
    (
        "run --env broken_envs:Nope",
        "env.id: cannot make environment 'broken_envs:Nope': module 'broken_envs' registers no "
        "environment 'Nope' and has no class or function of that name; it registers ... and "
        "2 more; it has Sound, NoDisplay, NoLicense",
    ),
    (
        "run --env broken_envs:NoDisplay",
        "env.id: broken_envs:NoDisplay fails when it is made, reset and stepped: RuntimeError: no "
        f"display (broken_envs.py:21, in __init__); {FIXED}",
    ),
    (
        "run --env broken_envs:BrokenNoDisplay-v0",
        "env.id: broken_envs:BrokenNoDisplay-v0 fails when it is made, reset and stepped: "
        f"RuntimeError: no display (broken_envs.py:21, in __init__); {FIXED}",
    ),
    (
        "run --env broken_envs:BrokenNoLicense-v0 --agent dqn",
        "env.id: broken_envs:BrokenNoLicense-v0 fails when it is made, reset and stepped: "
        f"ValueError: no license (broken_envs.py:26, in reset); {FIXED}",
    ),
    (
        "run --env broken_envs:Quits",
        "env.id: broken_envs:Quits fails when it is made, reset and stepped: SystemExit: ... "
        f"(broken_envs.py:56, in step); {FIXED}",
    ),
    (
        "run --env broken_envs:BrokenOldStep-v0 --agent dqn",
        "env.id: environment broken_envs:BrokenOldStep-v0: step() gives four values, as in gym's "
        "old API: return obs, reward, terminated, truncated, info; truncated is true where a limit "
        "has cut the episode (OldStep.step, broken_envs.py:35)",
    ),
    (
        "run --env broken_envs:BrokenWrongShape-v0 --agent dqn",
        "env.id: observation space Box(0.0, 1.0, (2,), float32): step() gave an observation whose "
        "'obs' has shape (3,), expected (2,) (WrongShape.step, broken_envs.py:30)",
    ),
    (
        "run --env broken_envs:BrokenManyActions-v0 --agent dqn",
        "agent.name: agent 'dqn' takes Discrete or MultiDiscrete action spaces, not "
        "MultiBinary(2); choose another agent or environment",
    ),
    (
        "run --env broken_envs:BrokenWords-v0 --agent dqn",
        "env.id: observation space Text: it is text: name a wrapper in env.wrappers that makes it "
        "an array",
    ),
    (
        "run --env broken_envs:BrokenNeedsOptions-v0 --agent dqn",
        "env.id: broken_envs:BrokenNeedsOptions-v0 fails when it is made, reset and stepped: "
        "TypeError: 'NoneType' object is not subscriptable (broken_envs.py:62, in reset); its "
        "reset() needs options: set env.reset_options.KEY=VALUE",
    ),
    (
        "run env.kwargs.nope=1",
        "env.id: cannot make environment 'CartPole-v1': its constructor takes no nope: leave "
        "env.kwargs.nope out",
    ),
    ('run env.wrappers=["nope"]', "env.wrappers.0: 'nope' is not of the form module:Name"),
    (
        'run env.wrappers=["gymnasium.wrappers:Nope"]',
        "env.wrappers.0: cannot make environment 'CartPole-v1': 'gymnasium.wrappers:Nope' is no "
        "gymnasium.Wrapper",
    ),
]

OWN_NAMES = [
    (
        "run --agent ppo",
        "agent.name: unknown agent 'ppo': appo is asynchronous PPO, corrected by V-trace as in "
        f"IMPALA; {NAMES}",
    ),
    ("run --agent dnq", f"agent.name: unknown agent 'dnq': did you mean dqn?; {NAMES}"),
    ("run --agent nope", f"agent.name: unknown agent 'nope'; {NAMES}"),
    (
        "run --agent nopkg:A",
        f"agent.name: unknown agent 'nopkg:A': there is no module 'nopkg' {PATH}; {NAMES}",
    ),
    (
        "run --agent json:loads",
        f"agent.name: unknown agent 'json:loads': it is no AgentKind, and no Policy class; {NAMES}",
    ),
    (
        "run --agent sac --env CartPole-v1",
        "agent.name: agent 'sac' takes continuous Box action spaces, not Discrete(2); choose "
        "another agent or environment",
    ),
    (
        "run --agent dqn --env Pendulum-v1",
        "agent.name: agent 'dqn' takes Discrete or MultiDiscrete action spaces, not "
        "Box(-2.0, 2.0, (1,), float32); choose another agent or environment",
    ),
    (
        "run --agent sac --env vedette_rl.testing:VisualReach agent.random_shift=13",
        "agent.random_shift is 13, and obs/camera has 48 pixels a side: set 'auto', or 12 at most, "
        "a quarter of it",
    ),
    (
        "run agent.network=nopkg:Net",
        f"agent.network is 'nopkg:Net': there is no module 'nopkg' {PATH}",
    ),
    (
        "run agent.network=collections:ChainMap",
        "agent.network is 'collections:ChainMap': it made a ChainMap, not an nn.Module",
    ),
    (
        "run agent.network=json:loads",
        "agent.network: json:loads fails when it is made and shown two observations: TypeError: "
        "loads() takes ...; fix the network; VEDETTE_TRACEBACK=1 shows where",
    ),
    (
        "run agent.network=nope",
        "agent.network: must be 'auto', 'mlp', 'cnn' or module:Name, not 'nope'",
    ),
    (
        "run agent.network=cnn",
        "agent.network: 'cnn' takes uint8 images of at least 8 pixels a side (36 without "
        "channels), or stacks of such, not Box(..., (4,), float32); set agent.network=auto, or "
        "make it one by env.wrappers",
    ),
    (
        "run agent.exploration.kind=nopkg:E",
        f"agent.exploration.kind is 'nopkg:E': there is no module 'nopkg' {PATH}",
    ),
    (
        "run actors.step_processor=json:Nope",
        "actors.step_processor is 'json:Nope': module 'json' has no 'Nope'",
    ),
    (
        'run learner.recorders=["nope"]',
        "learner.recorders.0: must be 'tensorboard', 'csv', 'jsonl', 'mlflow', 'wandb' or "
        "module:Name, not 'nope'",
    ),
]

CONFIGURATION = [
    ("run missing.toml", "missing.toml: no such file; `vedette config > missing.toml` writes one"),
    (
        "run CartPole-v1",
        "CartPole-v1: no such file; pass an environment as --env ID and a setting as KEY=VALUE",
    ),
    ("run folder", "folder: a folder, not a TOML file; a run goes to --out"),
    ("run broken.toml", "broken.toml: not TOML: Expected ']' ... (at line 1, column 9)"),
    (
        "run a.toml b.toml",
        "b.toml: only one configuration file is allowed, and a.toml is given already",
    ),
    (
        "actors --learner here --allow-import odd,pol",
        "--allow-import odd,pol: it is no name of a package; write --allow-import odd "
        "--allow-import pol",
    ),
    (
        "eval run --allow-import my_pkg.envs:MyEnv",
        "--allow-import my_pkg.envs:MyEnv: it is no name of a package; its package is my_pkg",
    ),
    ("run --set nonsense", "--set nonsense: write KEY=VALUE, such as learner.sync_interval=100"),
    (
        "collect --env CartPole-v1 --out x --min-return nan",
        "invalid value for '--min-return': must be finite; ...",
    ),
    (
        "collect --env CartPole-v1 --out x --min-return=-inf",
        "invalid value for '--min-return': must be finite; ...",
    ),
    ("stop runs/one --timeout inf", "invalid value for '--timeout': must be finite; ..."),
    ("status runs/one --timeout inf", "invalid value for '--timeout': must be finite; ..."),
    ("actors --learner here --wait inf", "invalid value for '--wait' ...: must be finite; ..."),
    ("learner --linger nan", "invalid value for '--linger' ...: must be at least 0; ..."),
    ("run lr=1e-3", "lr: unknown key; did you mean agent.learning_rate?"),
    ("run replay.warmup=9", "replay.warmup: unknown key; did you mean learner.warmup_period?"),
    (
        "run learner.sync_intervall=3",
        "learner.sync_intervall: unknown key; did you mean learner.sync_interval?",
    ),
    ("run agent.kappa=1", "agent.kappa: unknown key; agents that have agent.kappa: iqn"),
    ("run agent.zzz=1", "agent.zzz: unknown key; `vedette config --all` lists every key"),
    ("run learner=3", "learner: must be a table, not 3; set learner.KEY"),
    (
        "run agent.exploration=greedy",
        "agent.exploration: must be a table, not 'greedy'; set agent.exploration.KEY",
    ),
    (
        "run agent.hidden_sizes=64,64",
        "agent.hidden_sizes: must be a list in brackets, not '64,64'; in a shell, in quotes: "
        "'agent.hidden_sizes=[64, 64]'",
    ),
    (
        "run agent.hidden_sizes=064,64",
        "agent.hidden_sizes: must be a list in brackets, not '064,64'; in a shell, "
        "'[1, \"a\"]' is a list",
    ),
    ("run seed=x", "seed: must be a whole number, not 'x'"),
    ("run learner.device=gpu", "learner.device: must be auto, cpu, mps, cuda or cuda:N, not 'gpu'"),
    (
        "run replay.capacity=10",
        "replay.capacity: 10 samples can never hold learner.warmup_period's 1,000; set at least "
        "1000 or lower learner.warmup_period",
    ),
    (
        "run agent.batch_size=200000",
        "replay.capacity: 50,000 samples are fewer than agent.batch_size's 200,000; set at least "
        "200000 or lower agent.batch_size",
    ),
    (
        "run actors.restart_min_s=60",
        "actors.restart_max_s: 30 s is below actors.restart_min_s's 60; set at least 60 or lower "
        "actors.restart_min_s",
    ),
    (
        "run replay.capacity=100000000000",
        "replay.capacity: the replay needs ... TB of disk in ..., but ... is free: set "
        "replay.capacity=..., which fits, or name a larger disk as replay.directory",
    ),
    (
        "run actors.n_buffer=1000000 actors.window_bytes=1000",
        "actors.window_bytes: 1,000 bytes hold no batch of ...; set at least ... or lower "
        "actors.n_buffer",
    ),
    (
        "run replay.error_buffer=1",
        "replay.error_buffer is 1, and batches of 64 would never be drawn: raise it to 32 or more",
    ),
    (
        "run learner.eval_interval=0",
        "stop.target_return: is never reached with learner.eval_interval=0; set an eval_interval "
        "or another stop condition",
    ),
    ("run replay.beta_final=0.1", "replay: beta_final is 0.1, below beta_0 0.4: raise it"),
]

PLACES = [
    ("run --out file", "--out file: file is a file; name a folder"),
    ("run --out /proc/x/y", "--out /proc/x/y: /proc cannot be written; name another folder"),
    ("run --force", "--force: it needs --fresh, to erase the run in a directory"),
    (
        "run --out arun --fresh",
        "--fresh: arun holds a run; add --force to erase it, or choose another --out",
    ),
    (
        "eval nothing.npz",
        "nothing.npz: there is no such run or file; name a run's directory, an exported policy or "
        "hf://USER/NAME",
    ),
    ("export file --format numpy --out x", "file: it is a file, and a run is a folder"),
    ("report arun/config.toml", "arun/config.toml: it is a file, and a run is a folder; name arun"),
    (
        "run --init-from file",
        "learner.init_from: ...file: it is a file, and a run is a folder; name a run's directory",
    ),
    ("eval folder", "folder: not a run's directory: it has no config.toml"),
    ("report folder", "folder: not a run's directory: it has no config.toml, and no run below it"),
    (
        "eval arun",
        "arun: it has no best/: no evaluation of it has ended yet; "
        "--checkpoint latest takes what it has",
    ),
    ("eval arun --checkpoint 7", "arun: it has no checkpoint 7 (it has none)"),
    ("eval arun --video film.avi", "film.avi: a video is named .gif or .mp4"),
    (
        "export arun --format png --out x",
        "--format png: a policy is exported as onnx, safetensors, numpy",
    ),
    (
        "export arun --what all --format npz --out x",
        "--what all: not known; policy and replay are",
    ),
    (
        "export arun --format onnx --out folder",
        "--out folder: name a file in a folder that exists",
    ),
]

WHO_IS_THERE = [
    (
        "learner --bind 0.0.0.0:6000",
        "--bind 0.0.0.0:6000: anyone who reaches this address could send samples; make keys with "
        "`vedette keys new DIR` and give --keys DIR, or say --insecure if you trust the whole "
        "network",
    ),
    (
        "learner --bind 127.0.0.1:65535",
        f"address '127.0.0.1:65535': port 65535 is not within 1 to 65533; {ADDRESS}",
    ),
    (
        "learner --bind nowhere.invalid:6000",
        "address 'nowhere.invalid:6000': host 'nowhere.invalid' does not resolve; "
        "check its spelling, or give an IP address",
    ),
    (
        "status --learner a:b:c",
        f"address 'a:b:c': an IPv6 address stands in brackets; {ADDRESS}",
    ),
    (
        "actors --learner host --id a/b",
        "--id: 'a/b' has other than 1 to 64 of A-Z a-z 0-9 . _ -",
    ),
    (
        "actors --learner host --keys no",
        "no: holds no keys; name this host's folder: hosts/NAME of the one that `vedette keys new` "
        "made",
    ),
    (
        "learner --keys keys --insecure",
        "--keys and --insecure contradict each other: give one of them",
    ),
    ("keys new keys", "keys: has keys already; vedette keys add keys NAME adds another host's"),
    ("keys add keys a/b", "'a/b': is no name; use 1 to 64 of A-Z a-z 0-9 . _ -"),
    (
        "keys add keys gpu-2",
        "keys/admitted/gpu-2.toml: is there already; vedette keys remove keys gpu-2",
    ),
    (
        "keys remove keys gpu-3",
        "keys/admitted/gpu-3.toml: is not there; vedette keys list keys",
    ),
    ("keys new file", "file: cannot be written: File exists"),
]

COMMAND_LINES = [
    (
        "frobnicate",
        "no such command 'frobnicate'; there are run, learner, actors, ...; see vedette --help",
    ),
    ("train", "no such command 'train'; did you mean run?; see vedette --help"),
    ("rnu", "no such command 'rnu'; did you mean run?; see vedette --help"),
    ("serve", "no such command 'serve'; there are run, learner, actors, ...; see vedette --help"),
    ("trian", "no such command 'trian'; did you mean run?; see vedette --help"),
    ("ls", "no such command 'ls'; did you mean runs?; see vedette --help"),
    ("presets", "no such command 'presets'; did you mean list?; see vedette --help"),
    (
        "resume runs/x",
        "no such command 'resume'; the same `vedette run` with the same --out resumes a run; see "
        "vedette --help",
    ),
    ("sac", "no such command 'sac'; did you mean `vedette run --agent sac`?; see vedette --help"),
    (
        "run --config mine.toml",
        "no such option: --config; the TOML file is given as it is, without an option; see vedette "
        "run --help",
    ),
    (
        "eval runs/x --n 5",
        "no such option: --n; did you mean --episodes N?; see vedette eval --help",
    ),
    ("run --n 5", "no such option: --n; see vedette run --help"),
    ("run --setx lr=1", "no such option: --setx; did you mean --set?; see vedette run --help"),
    (
        "run --num-envs 4",
        "no such option: --num-envs; a setting is given as actors.envs_per_actor=VALUE; see "
        "vedette run --help",
    ),
    (
        "learner --port 7000",
        "no such option: --port; did you mean --bind HOST:PORT?; see vedette learner --help",
    ),
    (
        "list games",
        "invalid value for 'KIND': 'games' is not one of 'agents', 'environments', ...; see "
        "vedette list --help",
    ),
    (
        "run --steps 1000",
        "no such option: --steps; a setting is given as stop.max_env_steps=VALUE; see vedette run "
        "--help",
    ),
    (
        "bench fleet --env CartPole-v1",
        "no such command 'bench'; benchmarks are `scripts/bench/run` of a checkout; see vedette "
        "--help",
    ),
    ("keys load", "no such command 'load'; there are new, ...; see vedette keys --help"),
    ("keys nope", "no such command 'nope'; there are new, ...; see vedette keys --help"),
    ("run --frobnicate", "no such option: --frobnicate...; see vedette run --help"),
    (
        "run --lr 1e-3",
        "no such option: --lr; a setting is given as agent.learning_rate=VALUE; see vedette run "
        "--help",
    ),
    (
        "run --seed 3",
        "no such option: --seed; a setting is given as seed=VALUE; see vedette run --help",
    ),
    ("run --env", "option '--env' requires an argument; see vedette ..."),
    (
        "actors",
        "missing option '--learner' (env var: 'VEDETTE_LEARNER'); see vedette actors --help",
    ),
    (
        "actors --learner host --count 0",
        "invalid value for '--count' (env var: 'VEDETTE_COUNT'): must be at least 1; see vedette "
        "actors --help",
    ),
    (
        "status --timeout x",
        "invalid value for '--timeout': must be a number; see vedette status --help",
    ),
    ("keys new", "missing argument 'DIR'; see vedette keys new --help"),
]

FAILURES = [
    (
        "learner --bind 192.0.2.1:6000 --insecure",
        "cannot bind 192.0.2.1:6000 (samples): Cannot assign requested address; "
        "--bind takes an address of this host, or 0.0.0.0 for all of them",
    ),
    (
        "status --timeout 0.2 --learner 127.0.0.1:28990",
        "no learner answers at 127.0.0.1:28990 (waited 0.2 s); `vedette doctor --learner "
        "127.0.0.1:28990` says why",
    ),
    ("run --in-process --agent dqn --env broken_envs:Quits env.kwargs.after=300", QUITS),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for the page's commands: with a run, keys, a file, and what is broken."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for name in ("broken.toml", "a.toml", "b.toml"):
        (tmp_path / name).write_text("[learner\nx = 1")
    (tmp_path / "needs.py").write_text("import not_there\n")
    (tmp_path / "arun").mkdir()
    (tmp_path / "arun" / "run.json").write_text('{"run_id": "a", "epoch": 1}')
    write_config(configured(), tmp_path / "arun" / "config.toml")
    make_keys(tmp_path / "keys", ["gpu-2"])
    monkeypatch.delitem(sys.modules, "needs", raising=False)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return tmp_path


def said_by(vedette: Run, command: str) -> tuple[int, str]:
    """A command's exit status and its one line of error."""
    status, text = vedette(*command.split())
    lines = [line for line in text.splitlines() if line.startswith("vedette: ")]
    assert "Traceback" not in text
    assert len(lines) == 1, text
    return status, lines[0].removeprefix("vedette: ")


def expected(words: str) -> str:
    return ".*".join(re.escape(part) for part in words.split("..."))


def assert_refused(vedette: Run, command: str, words: str) -> None:
    status, said = said_by(vedette, command)
    assert re.fullmatch(expected(words), said), said
    assert status == 2
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    ENVIRONMENTS,
    ids=lambda value: value if " " in value and len(value) < 60 else "",
)
@pytest.mark.usefixtures("place")
def test_an_environment_that_cannot_be_played_is_refused_with_these_words(
    vedette: Run, command: str, words: str
) -> None:
    assert_refused(vedette, command, words)


@pytest.mark.parametrize(
    ("command", "words"),
    [*OWN_NAMES, *CONFIGURATION, *PLACES, *WHO_IS_THERE, *COMMAND_LINES],
    ids=lambda value: value if " " in value and len(value) < 60 else "",
)
@pytest.mark.usefixtures("place", "probed_here")
def test_wrong_usage_is_refused_with_these_words(vedette: Run, command: str, words: str) -> None:
    assert_refused(vedette, command, words)


@pytest.mark.parametrize(("command", "words"), FAILURES)
def test_a_failure_has_these_words_and_status_1(vedette: Run, command: str, words: str) -> None:
    status, said = said_by(vedette, command)
    assert re.fullmatch(expected(words), said), said
    assert status == 1


@pytest.mark.usefixtures("probed_here")
def test_every_wrong_key_has_its_line_with_the_file_or_variable_that_it_stands_in(
    vedette: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.toml").write_text(
        "lr = 1\n[learner]\nsync_interval = 'x'\nbuffer_size = 3\n[stop]\nmax_opts = 5\n"
    )
    monkeypatch.setenv("VEDETTE_SET", "seed=q")
    status, text = vedette("run", "mine.toml", "stop.max_opts=-1")
    assert status == 2
    assert sorted(text.splitlines()) == [
        "vedette: VEDETTE_SET: seed: must be a whole number, not 'q'",
        "vedette: mine.toml: learner.buffer_size: unknown key; did you mean replay.capacity?",
        "vedette: mine.toml: learner.sync_interval: must be a whole number, not 'x'",
        "vedette: mine.toml: lr: unknown key; did you mean agent.learning_rate?",
        "vedette: stop.max_opts: must be at least 0, not -1",
    ]


@pytest.mark.usefixtures("probed_here")
def test_settings_that_contradict_each_other_are_told_beside_wrong_ones(vedette: Run) -> None:
    status, text = vedette(
        "run",
        "--agent",
        "dqn",
        "agent.learning_rate=-1",
        "seed=x",
        "replay.capacity=10",
        "learner.warmup_period=100",
    )
    assert status == 2
    assert sorted(text.splitlines()) == [
        "vedette: agent.learning_rate: must be more than 0, not -1",
        "vedette: replay.capacity: 10 samples can never hold learner.warmup_period's 100; set at "
        "least 100 or lower learner.warmup_period",
        "vedette: seed: must be a whole number, not 'x'",
    ]


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        ("NoSuch-v9 agent.no=1 agent.tau=x replay.capacity=10", "env.id agent.no replay.capacity"),
        ("NoSuch-v9 --agent dqn replay.capacity=10", "replay.capacity env.id"),
        ("NoSuch-v9 --agent dqn agent.nope=1", "agent.nope env.id"),
        ("CartPole-v1 --agent sac agent.nope=1", "agent.nope agent.name"),
        ("CartPole-v1 --agent sac replay.capacity=10", "replay.capacity agent.name"),
        ("CartPole-v1 --agent dqn agent.nope=1", "agent.nope"),
    ],
)
@pytest.mark.usefixtures("probed_here")
def test_an_unfit_environment_hides_no_other_error(vedette: Run, arguments: str, keys: str) -> None:
    status, text = vedette("run", "--env", *arguments.split())
    assert status == 2
    assert [line.split(": ")[1] for line in text.splitlines()] == keys.split()


@pytest.mark.usefixtures("probed_here")
def test_a_contradiction_with_a_wrong_setting_is_not_told(vedette: Run) -> None:
    _, text = vedette("run", "replay.capacity=10", "learner.warmup_period=x")
    assert text == "vedette: learner.warmup_period: must be a whole number, not 'x'\n"


@pytest.mark.skipif(importlib.util.find_spec("ale_py") is not None, reason="Atari is installed")
def test_an_atari_game_without_atari_is_named(vedette: Run) -> None:
    for name in ("Pong-v5", "PongNoFrameskip-v4"):
        status, text = vedette("run", "--env", name)
        assert status == 2
        assert "an Atari game is ALE/Pong-v5, with pip install 'vedette[atari]'" in text


def test_what_gymnasium_warns_of_is_a_line_without_colours(
    vedette: Run, caplog: pytest.LogCaptureFixture, place: Path
) -> None:
    vedette("run", "--env", "broken_envs:BrokenWrongShape-v0", "--agent", "dqn")
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1
    assert told[0].startswith("environment broken_envs:BrokenWrongShape-v0: The obs returned")
    assert "\x1b" not in told[0]
    assert not (place / "runs").exists()
