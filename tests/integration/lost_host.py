"""A lost host: robots with outboxes are killed and cut off, and the learner's host is destroyed.

``scripts/lost_host 50 --minutes 10`` makes network namespaces for two robots' hosts and two
learners', with keys on, and plays counting environments at 50 Hz. In one run

* the manager of the first robot is killed by ``kill -9``, at random moments: while it starts, while
  it plays, offline, while it uploads, while there is no learner;
* the robots' network is cut, and they play on;
* the learner is killed, its host's disk and network are removed, and another host goes on from the
  snapshot. The first robot finds it by the name that now means another address, the second one by
  the address that has moved.

What is to be in the replay is read from the outbox's files after each kill: the rows of each batch
that a dead manager's actors had handed over. At the end the exported replay must hold each of them
once, and none that was never handed over; and of the second robot, which is never killed, every
step that was played. Ctrl-C ends it without a verdict.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from counting_env import Count, played
from counting_run import ENVS, N_BUFFER
from daemons import Daemon, Daemons, environment, vedette, wait_for
from host_network import Network
from namespaces import why_not
from proof import exported_steps, steps_of
from smoke import SmokeError, Status, balanced, line, wait
from trial import Trial, parser_of

from vedette_protocol.schema import Schema
from vedette_rl.envs.spaces import Spaces, column_bounds, transition_dtype
from vedette_services.actors.actor_spec import SLOTS
from vedette_services.actors.outbox.records import read_segment
from vedette_services.run.snapshot_directory import SnapshotDirectory

OLD, NEW = "learner-a", "learner-b"
HOSTS = {OLD: "10.78.0.1", NEW: "10.78.0.2", "robot-1": "10.78.0.11", "robot-2": "10.78.0.12"}
SWITCH = "10.78.0.254"
NAME = "learner.example.org"
ROBOTS = {"robot-1": NAME, "robot-2": HOSTS[OLD]}
"""By what they find the learner."""

SETTINGS = (
    "replay.capacity=3000000",
    "replay.samples_per_insert=4",
    "agent.batch_size=64",
    "agent.hidden_sizes=[64,64]",
    "agent.n_step=1",
    "learner.warmup_period=1000",
    "learner.eval_interval=0",
    "learner.save_interval=500",
    "env.kwargs.sleep_s=0.005",  # of four environments in turn: 50 Hz
    "env.stepping=serial",  # whose time is not measured by steps that no replay holds
    f"actors.envs_per_actor={ENVS}",
    f"actors.n_buffer={N_BUFFER}",
    "stop.max_seconds=100000",
)
WAIT_S = 240.0
LITTLE_ROWS = 1000
STARTING_SHARE = 0.3
"""Of the kills, those at a random moment from the start on, whatever the manager does then."""
PLAYING_S, STARTING_S = 3.0, 5.0

SPACES = Spaces(Count.observation_space, Count.action_space)
SCHEMA = Schema.from_dtype(transition_dtype(SPACES), column_bounds(SPACES))


class Handed:
    """The steps that actors had handed over when their manager was killed, by environment.

    An environment's steps go up by one, and batches are written in order: what was handed over of
    one is all of its steps below the highest in a file. Where nothing of it is in a file any more,
    all was safe, and nobody knows here how many steps that were.
    """

    def __init__(self) -> None:
        self.below: dict[int, int] = {}
        self.read_rows = 0

    def read(self, outbox: Path) -> None:
        """Take the files of a dead manager into account."""
        for path in sorted(outbox.glob("*.outbox")):
            data = path.read_bytes()
            segment = read_segment(data)
            if segment.header is None:
                continue  # killed while it was made
            assert segment.header.schema == SCHEMA.hash, f"{path}: rows of another schema"
            for record in segment.records:
                payload = memoryview(data)[record.offset : record.offset + record.size]
                uid, step, sound = steps_of(SCHEMA.views(payload, record.numbers.rows))
                assert sound.all(), f"{path}: a batch that was not played"
                self.read_rows += len(uid)
                for number in np.unique(uid):
                    above = int(step[uid == number].max()) + 1
                    self.below[int(number)] = max(self.below.get(int(number), 0), above)


class Field:
    """The hosts, what runs on them, and what is to be in the replay at the end."""

    def __init__(self, trial: Trial, network: Network, daemons: Daemons, seed: int) -> None:
        self._trial = trial
        self._network = network
        self._daemons = daemons
        self._rng = random.Random(seed)
        self.place = trial.place
        self.tally = self.place / "tally"
        self.snapshot = self.place / "nas" / "run"
        self.handed = Handed()
        self.kills = dict[str, int]()
        self.learner_host = OLD
        self.robots: dict[str, Daemon] = {}
        self.actors_of_second: set[int] = set()

    # What an operator does

    def set_up(self) -> None:
        """Make keys, start the learner, and bring each robot its keys."""
        for place in (self.tally, self.snapshot.parent, *(self.place / host for host in HOSTS)):
            place.mkdir(parents=True)
        home = self.place / OLD
        made = self._say(OLD, "keys", "new", home / "keys", *ROBOTS)
        assert made.returncode == 0, made.stderr
        for robot in ROBOTS:
            shutil.copytree(home / "keys" / "hosts" / robot, self.place / robot / "keys")
        shutil.copytree(home / "keys", self.place / "safe")  # without which nobody takes over
        self._network.name_host("robot-1", NAME, HOSTS[OLD])
        self.learner = self._start_learner(
            *("--env", "counting_env:Count-v0", "--agent", "dqn"),
            *SETTINGS,
            f"env.kwargs.tally={self.tally}",
            f"learner.snapshot={self.snapshot}",
        )
        for robot in ROBOTS:
            self.start_robot(robot)

    def _start_learner(self, *options: str | Path) -> Daemon:
        home = self.place / self.learner_host
        return self._daemons.start(
            self.learner_host,
            *("learner", "--out", home / "run", "--bind", "0.0.0.0:5555", "--keys", home / "keys"),
            *options,
            run_in=self._network.within(self.learner_host),
        )

    def start_robot(self, robot: str) -> None:
        home = self.place / robot
        self.robots[robot] = self._daemons.start(
            robot,
            *("actors", "--learner", ROBOTS[robot], "--keys", home / "keys", "--id", robot),
            *("--count", 1, "--allow-import", "counting_env", "--outbox", home / "outbox"),
            run_in=self._network.within(robot),
        )

    def _say(self, host: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a vedette command that ends, on a host."""
        command = self._network.within(host, *vedette(*words))
        env = environment(self._daemons.mark)
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=90)

    def status(self) -> Status | None:
        """The status, asked on the learner's own host."""
        keys = self.place / self.learner_host / "keys"
        ask = ("status", "--json", "--learner", "127.0.0.1", "--keys", keys)
        done = self._say(self.learner_host, *ask)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def wait(self, what: str, met: Callable[[Status], object]) -> Status:
        """Ask until the status meets a condition; its accounting balances every time."""
        return wait(what, self.status, met, wait_s=WAIT_S, look_every_s=2.0)

    # What happens

    def kill(self, count: int, when: str, *, alone: bool = False) -> None:
        """Kill the first robot's manager so many times, and start it again each time.

        Args:
            alone: it reaches no learner, so a new one plays nothing.
        """
        for _ in range(count):
            if not alone and self._rng.random() >= STARTING_SHARE:
                self.plays("robot-1")
                self._sleep(self._rng.uniform(0.0, PLAYING_S))
            else:
                self._sleep(self._rng.uniform(0.0, STARTING_S))
            self.kill_first(when)
            self.start_robot("robot-1")
        self._trial.say(
            f"killed {count} times {when}: {sum(self.kills.values())} kills; steps of "
            f"{len(self.handed.below)} environments handed over; outbox: {self.held('robot-1')}"
        )

    def kill_first(self, when: str) -> None:
        """`kill -9` of the manager alone, with which its actors die, or of all at one blow."""
        robot = self.robots["robot-1"]
        assert robot.running, f"the manager ended by itself: {robot.log[-2000:]}"
        family = robot.children()
        if self._rng.random() < 0.5:
            robot.send_group(signal.SIGKILL)
            robot.wait(10.0)
        else:
            robot.kill9()
        wait_for(lambda: not set(family) & set(self._daemons.alive()), "end of its actors")
        self.kills[when] = self.kills.get(when, 0) + 1
        self.handed.read(self.place / "robot-1" / "outbox")

    def plays(self, robot: str) -> None:
        """Wait until an actor of the manager that runs now has played."""
        daemon = self.robots[robot]

        def has_played() -> bool:
            actors = set(daemon.children("actor"))
            return any(pid in actors and steps > 1 for steps, pid in played(self.tally).values())

        wait_for(has_played, f"step of {robot}", WAIT_S)

    def held(self, robot: str) -> str:
        """What is in an outbox, in words."""
        files = list((self.place / robot / "outbox").glob("*.outbox"))
        sessions = {path.name.split("-")[1] for path in files}
        size = sum(path.stat().st_size for path in files if path.exists())
        return f"{size / 1e6:.1f} MB in {len(sessions)} sessions"

    def sessions(self, robot: str) -> int:
        files = (self.place / robot / "outbox").glob("*.outbox")
        return len({path.name.split("-")[1] for path in files})

    def cut(self, minutes: float, kills: int) -> None:
        """Cut both robots off. In the second half of it the first one's manager is killed: the next
        ones find nobody who says what to play."""
        for robot in ROBOTS:
            self.plays(robot)
        before = self.steps()
        for robot in ROBOTS:
            self._network.cut(robot, off=True)
        ends = time.monotonic() + minutes * 60
        self._trial.say(f"cut off for {minutes:g} minutes")
        self._sleep(minutes * 30)
        self.kill(kills, "offline", alone=True)
        self._sleep(ends - time.monotonic())
        made = self.steps() - before
        held = {robot: self.held(robot) for robot in ROBOTS}
        self._trial.say(f"{made:,} steps were played meanwhile; outboxes: {held}")
        self._trial.check(made > minutes * 60 * 100, f"{made} steps offline: they did not play on")
        for robot in ROBOTS:
            self._network.cut(robot, off=False)

    def steps(self) -> int:
        """Steps that were played, by anybody."""
        return sum(steps for steps, _ in played(self.tally).values())

    def lose_host(self, kills: int) -> None:
        """Destroy the learner's host while the snapshot lacks rows; start another one elsewhere."""
        before = self.wait(
            "before the loss", lambda s: s["samples"]["inserted"] > self.in_snapshot() + 1000
        )
        self.learner.send_group(signal.SIGKILL)
        self.learner.wait(10.0)
        shutil.rmtree(self.place / OLD)
        self._network.destroy(OLD)
        lacking = before["samples"]["inserted"] - self.in_snapshot()
        self._trial.say(f"{OLD} is gone with its disk; the snapshot lacks {lacking:,} rows or more")
        self._trial.check(lacking > 0, "the snapshot lacked nothing: this shows too little")
        self.kill(kills, "while there is no learner", alone=True)
        self._network.take_address(NEW, HOSTS[OLD])
        self._network.name_host("robot-1", NAME, HOSTS[NEW])
        self.learner_host = NEW
        shutil.copytree(self.place / "safe", self.place / NEW / "keys")
        self.learner = self._start_learner("--from-snapshot", self.snapshot)
        after = self.wait("it goes on elsewhere", lambda s: s["opt_steps"] > 0 and here(s))
        if after["run_id"] != before["run_id"] or after["epoch"] <= before["epoch"]:
            raise SmokeError(f"it began anew: {line(after)}")

    def in_snapshot(self) -> int:
        """Rows of the newest generation."""
        newest = SnapshotDirectory(self.snapshot).look().newest
        return 0 if newest is None else newest.ring.inserted

    def finish(self) -> None:
        """Stop everybody once the learner has what was left, and hold the replay against what was
        handed over. A manager that is stopped sends no more than the limiter allows, so what waits
        is to be little."""
        self.wait("little waits", lambda s: here(s) and s["samples"]["in_flight"] < LITTLE_ROWS)
        wait_for(lambda: self.sessions("robot-1") <= 1, "end of the upload", WAIT_S)
        self.actors_of_second &= set(self.robots["robot-2"].children("actor"))
        last = set(self.robots["robot-1"].children("actor"))
        for robot in ROBOTS:
            code = self.robots[robot].stop()
            self._trial.check(code == 0, f"{robot} ended with {code}")
            stays = "that the learner does not have stay in the outbox" in self.robots[robot].log
            self._trial.check(not stays, f"{robot}: rows stay in its outbox: the learner is slow")
        code = self.learner.stop()
        self._trial.check(code == 0, f"the learner ended with {code}")
        self._judge(last)

    def _judge(self, last: set[int]) -> None:
        check = self._trial.check
        summary = json.loads((self.place / NEW / "run" / "summary.json").read_text())
        accounting = balanced(summary)["samples"]
        uid, step, sound = exported_steps(self.place / NEW / "run")
        rows = len(uid)
        stored = {int(number): step[uid == number] for number in np.unique(uid)}
        repeats = sum(len(steps) - len(np.unique(steps)) for steps in stored.values())
        whole = exact = missing = unexpected = unknown = 0
        died = dict[int, int]()
        for number, (steps, pid) in played(self.tally).items():
            has = np.unique(stored.get(number, np.empty(0, np.int64)))
            if steps == 1 and not len(has):  # to see what a step gives, by whoever asks that
                continue
            if pid in self.actors_of_second or pid in last:
                due = steps
                whole += 1
            elif number in self.handed.below:
                due = self.handed.below[number]
                exact += 1
            else:
                due = int(has.max()) + 1 if len(has) else 0
                unknown += 1
            missing += due - int((has < due).sum())
            unexpected += int((has >= due).sum())
            died[pid] = died.get(pid, 0) + steps - due
        most = max(died.values())
        print(
            f"{rows:,} rows: {repeats} repeated, {int((~sound).sum())} broken, {missing} that were "
            f"handed over are missing, {unexpected} were not handed over; accounting {accounting}\n"
            f"environments: {exact} of killed managers, whose files said what was handed over; "
            f"{unknown} of killed managers, nothing of which was in a file at the kill; {whole} "
            f"whose every step is due\n"
            f"{sum(died.values())} steps died with {sum(self.kills.values())} managers before they "
            f"were handed over, {most} with one at most; kills {self.kills}"
        )
        check(bool(self.actors_of_second), "the second robot's actor was started again")
        check(repeats == 0 and sound.all(), f"{repeats} rows are repeated, or some are broken")
        check(missing == 0, f"{missing} rows that were handed over are missing")
        check(unexpected == 0, f"{unexpected} rows were stored that no outbox had")
        check(most <= (SLOTS + 1) * N_BUFFER, f"{most} steps died with one manager")
        check(
            accounting["produced"] == accounting["inserted"] == rows,
            f"{rows} rows, accounting {accounting}",
        )
        others = ("lost", "in_flight", "dropped", "rejected")
        check(not any(accounting[name] for name in others), f"accounting {accounting}")

    def _sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


def here(status: Status) -> bool:
    """Both robots play."""
    states = {m["id"]: m["state"] for m in status["managers"]}
    return all(states.get(robot) == "running" for robot in ROBOTS)


def lose(trial: Trial, kills: int, minutes: float, seed: int) -> None:
    """All of it, in one run."""
    offline, uploading, alone = kills // 5, kills // 5, max(1, kills // 15)
    online = (kills - offline - uploading - alone) * 2 // 3
    with Network(HOSTS, SWITCH) as network, Daemons(trial.place) as daemons:
        field = Field(trial, network, daemons, seed)
        field.set_up()
        field.wait("both play", lambda s: s["opt_steps"] > 0 and here(s))
        field.plays("robot-2")
        field.actors_of_second = set(field.robots["robot-2"].children("actor"))
        field.kill(online, "while the learner answers")
        field.cut(minutes, offline)
        field.kill(uploading, "after the cut")
        field.lose_host(alone)
        field.kill(kills - sum(field.kills.values()), "at the new learner")
        field.finish()


def main() -> int:
    """The command; 0 where each row that was handed over was stored once."""
    parser = parser_of("lost_host", __doc__)
    parser.add_argument("kills", nargs="?", type=int, default=50, help="of a manager [50]")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the cut [10]")
    asked = parser.parse_args()
    if reason := why_not():
        parser.error(reason)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # namespaces go, too
    with Trial("lost_host", asked.out) as trial:
        try:
            lose(trial, asked.kills, asked.minutes, asked.seed)
        except (AssertionError, SmokeError, subprocess.TimeoutExpired) as error:
            trial.check(False, str(error))
        return trial.verdict()


if __name__ == "__main__":
    sys.exit(main())
