"""Writes the runs, replays and policies of this folder's archive.

The archive was written by commit 9a998dc2: by its own interpreter, on a host that is called `host`,
in the folder `/home/user/project`, as root, who may name a host::

    unshare --uts sh -c 'hostname host; exec PYTHON_OF_9a998dc2 make.py /home/user/project'

It is not made again with a later commit, which would write other files. Beside the runs,
`recorded.json` has what 9a998dc2 itself said about them.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import vedette
from vedette_rl.replay.syncing import read_synced

HERE = Path(__file__).resolve().parent
MODULES = ("numbered_env.py", "numbered_loop.py")
"""A user's own, which the runs import."""

VEDETTE = Path(sys.executable).parent / "vedette"
SMALL = (
    "agent.hidden_sizes=[8,8]",
    "agent.batch_size=8",
    "actors.count=1",
    "actors.envs_per_actor=2",
    "actors.n_buffer=8",
    "learner.warmup_period=40",
    "learner.keep_checkpoints=1",
    "learner.flush_record_interval=50",
    "evaluation.episodes=2",
    "env.stepping=serial",
)
"""Settings of every run: not to learn, but to write what runs write."""

NEW_RUNS = {
    "of-the-same-settings": (
        *("--env=CartPole-v1", "--agent=dqn", "--init-from=cartpole", "agent.hidden_sizes=[8,8]"),
        *("agent.n_step=3", "replay.sources.run.data=cartpole"),
    ),
    "of-one-step": (
        *("--env=CartPole-v1", "--agent=dqn", "agent.n_step=1"),
        *("replay.sources.npz.data=demos.npz", "replay.sources.minari.data=collected"),
        *("replay.sources.npz.share=0.3", "replay.sources.minari.share=0.3"),
    ),
    "of-pictures": (
        *("--env=numbered_env:NumberedPictures", "--agent=dqn", "agent.n_step=1"),
        *("replay.sources.run.data=loop", "replay.sources.run.share=0.3"),
        *("replay.sources.npz.data=loop-replay.npz", "replay.sources.npz.share=0.3"),
        *("replay.sources.minari.data=loop-minari", "replay.sources.minari.share=0.3"),
    ),
}
"""Runs in one process that draw from what was written, by their names: their settings."""

EVALUATED = ("--episodes", "3", "--seed", "7", "--json")
OBSERVATIONS = 8
OTHER_BOOT = 'mount --bind boot_id /proc/sys/kernel/random/boot_id && exec "$@"'
"""Starts a command as after another start of the machine: for a later one, the machine has stopped
while the run went on."""


def main() -> None:
    """Write all into a folder, and pack it."""
    project = Path(sys.argv[1])
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir(parents=True)
    for module in MODULES:
        shutil.copy(HERE / module, project)
    os.chdir(project)

    # Daemons: two starts, the second with another learning rate; the replay has wrapped.
    cartpole = ("--env", "CartPole-v1", "--agent", "dqn", "stop.target_return=1e9")
    prioritized = settings("replay.prioritized=true", "replay.samples_per_insert=8")
    run("first", *cartpole, "agent.n_step=1", "replay.capacity=200", "stop.max_env_steps=120")
    vedette_command("export", "first", "--what=replay", "--format=npz", "--out=demos.npz")
    source = settings("replay.sources.demos.data=demos.npz", "replay.sources.demos.share=0.25")
    limits = settings("replay.capacity=240", "learner.eval_interval=50", "learner.save_interval=90")
    cartpole += ("agent.n_step=3",)
    run("cartpole", *cartpole, *prioritized, *source, *limits, "stop.max_env_steps=200")
    run("cartpole", *settings("agent.learning_rate=1e-3", "stop.max_env_steps=400"))
    vedette_command("collect", "--policy=cartpole", "--out=collected", "--episodes=2")
    shutil.rmtree("first")

    # Daemons killed with -9, by a machine that stopped, while they stored frames once.
    pictures = ("--env", "numbered_env:NumberedPictures", "--set", "env.frame_stack=3")
    kill9_run(
        *("pictures", *pictures, "--agent", "iqn"),
        *settings("agent.network=mlp", "agent.n_step=1", "replay.capacity=3000"),
        *settings("learner.eval_interval=0", "learner.save_interval=30"),
        *settings("replay.sync_interval_s=0.1", "env.kwargs.sleep_s=0.01"),
    )

    # In one process: two starts, whose accounting is in the checkpoint.
    pendulum = ("--in-process", "--env", "Pendulum-v1", "stop.target_return=1e9")
    short = settings("learner.eval_interval=30", "learner.save_interval=25", "replay.capacity=500")
    sac = settings("agent.critic_hidden_sizes=[8,8]", "env.max_episode_steps=50")
    run("pendulum", *pendulum, "--agent=sac", *sac, *short, *prioritized, "stop.max_env_steps=120")
    run("pendulum", "--in-process", "stop.max_env_steps=200")
    run(
        *("begun", "--in-process", *cartpole, *short, "--init-from", "cartpole"),
        "stop.max_env_steps=150",
    )

    recorded = settings("--agent=td3", 'learner.recorders=["csv","jsonl"]')
    run("recorded", *pendulum, *sac, *short, *recorded, "stop.max_env_steps=90")

    own_loop("loop")

    policies()
    replays()
    record()
    plain_machine()
    pack(project, HERE / "runs.tar.xz")


def settings(*given: str) -> tuple[str, ...]:
    return given


def vedette_command(*arguments: str) -> str:
    done = subprocess.run([VEDETTE, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"vedette {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout


def run(out: str, *arguments: str) -> None:
    """Run ``vedette run`` to its end; a new run gets the small settings."""
    small = () if Path(out).exists() else SMALL
    vedette_command("run", "--out", out, *arguments, *small)


def kill9_run(out: str, *arguments: str) -> None:
    """Start ``vedette run``; kill all of it once its disk has a checkpoint and some rows."""
    Path("boot_id").write_text("00000000-1111-4222-8333-444444444444\n")
    on_other_boot = ["unshare", "--mount", "sh", "-c", OTHER_BOOT, "sh"]
    command = [*on_other_boot, VEDETTE, "run", "--out", out, *arguments, *SMALL]
    with Path("killed.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    deadline = time.monotonic() + 120.0
    while not (synced_rows(out) > 100 and any(Path(out, "checkpoints").glob("[0-9]*"))):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(Path("killed.log").read_text())
        time.sleep(0.05)
    family = descendants(process.pid)
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    for pid in {*family, *descendants(process.pid)}:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    Path("killed.log").unlink()
    Path("boot_id").unlink()


def synced_rows(out: str) -> int:
    """Rows of a run's replay that the disk has."""
    synced = read_synced(Path(out, "replay"))
    return 0 if synced is None else synced.commit.inserted


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(below for child in children for below in descendants(int(child)))]


def own_loop(out: str) -> None:
    """Run a training loop of a user's own, and actors for it."""
    loop = subprocess.Popen([sys.executable, "numbered_loop.py", out, "127.0.0.1:15555", "60"])
    actors = subprocess.run(
        [
            VEDETTE,
            "actors",
            "--learner=127.0.0.1:15555",
            "--count=1",
            "--allow-import=numbered_env",
        ],
        check=False,
    )
    if actors.returncode or loop.wait(60.0):
        raise SystemExit(f"the loop, or its actors (exit status {actors.returncode})")


def policies() -> None:
    """Export policies, in every form."""
    for form, ending in (("safetensors", "safetensors"), ("numpy", "npz"), ("onnx", "onnx")):
        vedette_command("export", "cartpole", "--format", form, "--out", f"cartpole.{ending}")
    for name in ("pendulum", "begun"):
        vedette_command("export", name, "--format=safetensors", f"--out={name}.safetensors")
    latest = ("--checkpoint=latest", "--format=numpy")
    vedette_command("export", "pictures", *latest, "--out=pictures.npz")


def replays() -> None:
    """Export replays."""
    for name in ("cartpole", "pictures", "loop"):
        out = f"--out={name}-replay.npz"
        vedette_command("export", name, "--what=replay", "--format=npz", out)
    vedette_command("export", "loop", "--what=replay", "--format=minari", "--out=loop-minari")


def record() -> None:
    """Write what this release says of all that."""
    found: dict[str, Any] = {"status": {}, "evaluations": {}, "actions": {}}
    for name in ("cartpole", "pictures", "pendulum", "begun", "recorded", "loop"):
        found["status"][name] = json.loads(vedette_command("status", name, "--json"))
    found["report"] = json.loads(vedette_command("report", "cartpole", "pendulum", "--json"))
    for name in ("cartpole", "pendulum", "begun"):
        found["evaluations"][name] = json.loads(vedette_command("eval", name, *EVALUATED))
    for file in ("cartpole.safetensors", "cartpole.npz", "pendulum.safetensors", "pictures.npz"):
        policy = vedette.load_policy(file)
        shape = {"cartpole": (4,), "pendulum": (3,), "pictures": (3, 2, 8)}[Path(file).stem]
        obs = np.random.default_rng(0).uniform(0, 1, (OBSERVATIONS, *shape)).astype(np.float32)
        if file == "pictures.npz":
            obs = (obs * 255).astype(np.uint8)
        found["actions"][file] = policy.act({"obs": obs}, explore=False).tolist()
    found["new runs"] = {}
    for name, arguments in NEW_RUNS.items():
        chosen = (*arguments, "learner.warmup_period=20", "stop.max_env_steps=150")
        vedette_command("run", "--in-process", "--out", name, *chosen)
        sources = json.loads(Path(name, "summary.json").read_text())["sources"]
        meta = max(Path(name).glob("checkpoints/*/meta.json"), key=os.path.getmtime)
        init = json.loads(meta.read_text()).get("init")
        found["new runs"][name] = {"arguments": chosen, "sources": sources, "init": init}
        shutil.rmtree(name)
    Path("recorded.json").write_text(json.dumps(found, indent=1) + "\n")


def plain_machine() -> None:
    """Put plain words for what describes this machine."""
    for file in Path().glob("*/provenance.json"):
        starts = json.loads(file.read_text())
        for start in starts:
            start |= {"platform": "Linux-x86_64", "cpu": "a processor"}
        file.write_text(json.dumps(starts, indent=2) + "\n")


def pack(project: Path, archive: Path) -> None:
    """Write the archive: the same files make the same bytes."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = int(entry.mtime)
        return entry

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", format=tarfile.PAX_FORMAT, preset=9) as tar:
        for path in sorted(project.rglob("*"), key=lambda path: (path.suffix, path.name, path)):
            if path.name not in (*MODULES, "__pycache__") and path.suffix != ".pyc":
                tar.add(path, str(path.relative_to(project)), recursive=False, filter=plain)
    archive.write_bytes(packed.getvalue())


if __name__ == "__main__":
    main()
