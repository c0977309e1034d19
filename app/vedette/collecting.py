"""Records demonstrations to a Minari data set: of a policy, of a person, or of both.

::

    demonstrator = open_demonstrator("runs/cart")      # a run, an exported file, module:function
    collect("demos", demonstrator.env, demonstrator, EpisodeSelection(episodes=20))
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from vedette.exporting import DataSetPlace, require_minari
from vedette_rl.core import Policy
from vedette_rl.core.exact_cast import cast_exactly
from vedette_rl.datasets.minari import (
    EpisodeRecorder,
    MinariWriter,
    PlayedEpisode,
    written_spec,
)
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import make_env, stack_frames
from vedette_rl.envs.process_guard import ProcessGuard
from vedette_rl.envs.registry import AllowImport, find_episode_bound
from vedette_rl.envs.slow_calls import SlowCall
from vedette_rl.envs.spaces import Spaces, agent_spaces, differing_part
from vedette_rl.envs.vector_env import Env
from vedette_rl.errors import EnvironmentFaultError
from vedette_rl.evaluation.evaluator import EnvironmentPolicy
from vedette_rl.exported import read_policy
from vedette_rl.import_by_name import IMPORT_NAME, import_by_name
from vedette_rl.storage.atomic_files import replacing
from vedette_rl.teleop.gamepad import Gamepad, GamepadTakeover
from vedette_rl.teleop.takeover import KeyboardTakeover, Takeover
from vedette_services.config.loading import load_config
from vedette_services.errors import ServicesError, UsageError, foreign_error_message
from vedette_services.host.processes import Interrupts
from vedette_services.host.system import vedette_version
from vedette_services.run.finished import FinishedRun
from vedette_services.run.outcome import read_summary
from vedette_services.run.policy_evaluation import read_evaluation

LOW_RETURN_EPISODES_MAX = 100
"""Episodes in a row below the least return, after which a policy is given up."""

PERSON = "person"


class Act(Protocol):
    """Chooses an environment's own action for its own observation."""

    def __call__(self, obs: Any, *, begins: bool) -> Any:
        """The action; `begins` where the observation is an episode's first."""
        ...


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """A policy or function that plays the episodes.

    Args:
        name: the text that the user gave.
        make: makes what acts in an environment.
        about: its part of the data set's metadata.
        env: the environment that it was trained on; None: it does not say.
        allow_import: the packages from which `env` may import, as `make_env` takes them.
    """

    name: str
    make: Callable[[Env], Act]
    about: Mapping[str, Any] = field(default_factory=dict)
    env: EnvConfig | None = None
    allow_import: AllowImport | None = None


@dataclass(frozen=True, slots=True)
class EpisodeSelection:
    """The episodes that are recorded: how many, and from which return on.

    Args:
        episodes: number of episodes that are kept.
        min_return: least return of an episode that is kept; None: all are.
        seed: seed of the first episode that is played; the i-th has `seed` + i.
    """

    episodes: int
    min_return: float | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Keyboard:
    """A person who acts, in place of the demonstrator where there is one.

    Args:
        keys, fps, ends: the arguments of `KeyboardTakeover`; `keys` may be buttons.
        gamepad: the person has a gamepad: its number, or a device; None: a keyboard.
    """

    keys: Mapping[str, JsonValue] | None = None
    fps: int | None = None
    ends: Mapping[str, float] | None = None
    gamepad: int | Gamepad | None = None

    @property
    def render_mode(self) -> str | None:
        """The pictures that the person's window needs; a gamepad has none."""
        return "rgb_array" if self.gamepad is None else None

    def take_over(self, env: Env) -> Takeover:
        """Let the person act in an environment.

        Raises:
            TakeoverError: no person can act in it.
        """
        if self.gamepad is None:
            return KeyboardTakeover(env, self.keys, self.fps, self.ends)
        pad = self.gamepad
        fps = self.fps
        return GamepadTakeover(env, buttons=self.keys, ends=self.ends, fps=fps, device=pad)


@dataclass(slots=True)
class Collected:
    """The recorded episodes, and why recording ended.

    Args:
        out: the data set.
        returns, lengths: a value for each episode that was kept.
        played: episodes that ended.
        ended: why it ended early; "" where all episodes were kept.
    """

    out: Path
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    played: int = 0
    ended: str = ""

    def __str__(self) -> str:
        kept = len(self.returns)
        returns = self.returns
        of = f" of {self.played:,} that were played" if self.played > kept else ""
        span = f"return {min(returns):.4g}" + f" to {max(returns):.4g}" * (kept > 1)
        ended = f"; {self.ended}" if self.ended else ""
        count = f"{kept:,} episode{'s' * (kept != 1)}{of}, {sum(self.lengths):,} steps"
        return f"{count}, {span}, in {self.out}{ended}"


# The player


def open_demonstrator(
    place: str, *, checkpoint: str | None = None, allow_import: Collection[str] = ()
) -> Demonstrator:
    """Open a run's directory, an exported policy, or a custom function.

    Args:
        place: the directory, the file, or ``module:function`` of an observation, which returns an
            action; a class is made again for each episode, and then called.
        checkpoint: optimization steps of a run's checkpoint, or ``latest``; None: the best model.
        allow_import: packages from which an exported policy, or a run that somebody else has begun,
            may import.

    Raises:
        ImportPermissionError: the run imports what nobody has allowed.
        NotARunError, NotInRunError: there is no such run or model.
        PolicyFileError: the file holds no policy.
        UsageError: it is not one of these.
        UnknownNameError: there is no such function.
    """
    path = Path(place)
    if path.is_dir():
        return _of_run(place, path, checkpoint, allow_import)
    if checkpoint is not None:
        raise UsageError(f"--checkpoint {checkpoint}: {place} is one policy, not a run")
    if path.is_file():
        return _of_file(place, path, allow_import)
    if re.fullmatch(IMPORT_NAME, place):
        return _of_function(place)
    fix = "name a run's directory, an exported policy or module:function"
    raise UsageError(f"--policy {place}: there is no such run or file; {fix}")


def _of_run(
    name: str, directory: Path, checkpoint: str | None, allow_import: Collection[str]
) -> Demonstrator:
    run = FinishedRun.open(directory, allow_import)
    saved = run.load_model(checkpoint)
    policy = run.build_greedy_policy()
    policy.sync_model(saved.model)
    about = {
        "agent": run.config.agent.name,
        "run_id": read_summary(directory).run_id,
        "model_version": saved.model.version,
        "seed": run.config.seed,
    }
    act = _acting(name, policy, run.spaces)
    return Demonstrator(name, act, about, run.config.env, run.may_make_environment)


def _of_file(name: str, path: Path, allow_import: Collection[str]) -> Demonstrator:
    policy = read_policy(path, allow_import=allow_import)
    about = {"agent": policy.config.name, "model_version": policy.model.version}
    played = read_evaluation(path, policy, allow_import) if "played" in policy.meta else None
    make = _acting(name, policy.make_policy(), policy.agent_spaces)
    if played is None:
        return Demonstrator(name, make, about)
    return Demonstrator(name, make, about, played.env, played.allow_import)


def _acting(name: str, policy: Policy, spaces: Spaces) -> Callable[[Env], Act]:
    """Makes what acts, after a check of the environment's spaces."""

    def make(env: Env) -> Act:
        here = agent_spaces(env.observation_space, env.action_space)
        if what := differing_part(here, spaces):
            ours, own = getattr(here, what), getattr(spaces, what)
            raise UsageError(
                f"--policy {name}: it takes {what}s of {own}, and the environment's are {ours}"
            )
        return EnvironmentPolicy(policy, env)

    return make


def _of_function(name: str) -> Demonstrator:
    function = import_by_name("--policy", name)
    if not callable(function):
        raise UsageError(f"--policy {name}: it is no function of an observation")
    return Demonstrator(name, lambda env: _CustomFunction(name, function, env.action_space))


class _CustomFunction:
    """A custom function, whose actions are put into the form of the space."""

    def __init__(self, name: str, made: Any, space: gym.Space[Any]) -> None:
        self._name = name
        self._made = made
        self._space = space
        self._act = made
        self._has_acted = False

    def _choose(self, obs: Any, begins: bool) -> Any:
        if begins and isinstance(self._made, type):
            self._act = self._made()
        return self._act(obs)

    def __call__(self, obs: Any, *, begins: bool) -> Any:
        if self._has_acted:
            given = self._choose(obs, begins)
        else:
            try:
                given = self._choose(obs, begins)
            except Exception as error:
                why = f"it takes no observation of this environment: {foreign_error_message(error)}"
                raise UsageError(f"--policy {self._name}: {why}") from error
        self._has_acted = True
        action = given
        if isinstance(self._space, gym.spaces.Box):
            action = self._cast(given)
            if action.shape == self._space.shape:  # environments clip, too
                action = np.clip(action, self._space.low, self._space.high)
        if not self._space.contains(action):
            raise self._no_action(given)
        return action

    def _cast(self, given: Any) -> NDArray[Any]:
        """An action of a Box in its dtype."""
        try:
            return cast_exactly(np.asarray(given), np.dtype(self._space.dtype))
        except (TypeError, ValueError) as error:  # a number of another kind, or none
            raise self._no_action(given) from error

    def _no_action(self, given: Any) -> UsageError:
        why = f"it gave {given!r}, which is no action of {self._space}"
        return UsageError(f"--policy {self._name}: {why}")


def choose_environment(
    demonstrator: Demonstrator | None,
    path: Path | None = None,
    env: str | None = None,
    settings: Sequence[str] = (),
    allow_import: Collection[str] = (),
) -> tuple[EnvConfig, AllowImport | None]:
    """Return the environment to record, and what it may import.

    A run's or policy file's own, unless another is named; settings are laid over a run's.

    Args:
        path: a TOML file.
        env: its id.
        settings: ``env.KEY=VALUE`` texts.
        allow_import: packages that a run's environment may import, whoever has begun the run.

    Raises:
        SettingError: a key is wrong.
        UsageError: no environment is named, or a setting is of another part.
    """
    for text in settings:
        if not text.startswith("env."):
            raise UsageError(f"{text}: collect takes settings of the environment, env.KEY=VALUE")
    known = demonstrator.env if demonstrator else None
    if path is None and env is None and not settings and demonstrator and known:
        return known, demonstrator.allow_import
    run = Path(demonstrator.name) / "config.toml" if demonstrator else None
    saved = run if run is not None and run.is_file() else None
    if path is None and env is None and saved is None:
        raise UsageError("--env ID: name the environment that is recorded")
    loaded = load_config(path, env=env, settings=settings, saved=saved, allow_import=allow_import)
    return loaded.config.env, None


# Recording


def collect(
    out: str,
    config: EnvConfig,
    demonstrator: Demonstrator | None,
    selection: EpisodeSelection,
    *,
    keyboard: Keyboard | None = None,
    allow_import: AllowImport | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Collected:
    """Play episodes and write those that are wanted; Ctrl-C keeps the ones that are whole.

    Args:
        out: a new folder, or ``minari:ID`` for Minari's own folder of data sets.
        config: the environment, without what only training wants; frames are stored unstacked.
        demonstrator: None: the person alone.
        keyboard: None: no person acts.
        allow_import: packages from which `config` may import, as `make_env` takes them; None: all,
            or those of the demonstrator where it is its own environment.
        say: takes a line for each episode; about 100 lines where a policy plays more.

    Raises:
        UsageError: it cannot be written there, or the policy does not fit the environment.
        TakeoverError: no person can act here.
        ServicesError: no episode was to be kept.
        EnvironmentFaultError: an observation or a reward is not finite.
    """
    if demonstrator is None and keyboard is None:
        raise ValueError("somebody must play: a demonstrator, a person, or both")
    require_minari("collect")
    place = DataSetPlace.of(out)
    if allow_import is None and demonstrator is not None and config is demonstrator.env:
        allow_import = demonstrator.allow_import
    if names := config.training_wrappers:
        say(f"without {names} (training_only): rewards and ends are those of evaluations")
    config = config.for_evaluation()
    environment = _PlayedEnvironment(config, demonstrator, keyboard, allow_import)
    about = _about(config, demonstrator, keyboard, selection)
    if environment.person is not None:
        say(environment.person.describe())
    with Interrupts() as interrupts, closing(environment), replacing(place.path) as aside:
        data = place.make(aside)
        by = {"algorithm_name": " and ".join(about["by"]), "vedette": about}
        made = environment.made
        spaces = (made.observation_space, made.action_space)
        spec = written_spec(made, config)
        writer = MinariWriter(data, *spaces, spec, place.id, by)
        recording = _Recording(place.path, environment, writer, selection, say, interrupts)
        failure = recording.run()
        collected = recording.collected
        writer.describe({"vedette": {**about, "played": collected.played}})
        if not collected.returns:
            raise failure or ServicesError(f"nothing is written to {out}: {collected.ended}")
    if failure is not None:
        say(f"it has failed; kept are {collected}")
        raise failure
    return collected


def _about(
    config: EnvConfig,
    demonstrator: Demonstrator | None,
    keyboard: Keyboard | None,
    selection: EpisodeSelection,
) -> dict[str, Any]:
    """The data set's metadata."""
    own = dict(demonstrator.about) if demonstrator else {}
    by = [str(own.get("agent") or demonstrator.name)] if demonstrator else []
    by += [PERSON] if keyboard else []
    return {
        "vedette_version": vedette_version(),
        "recorded": "episodes",
        "by": by,
        **own,
        "env": config.model_dump(mode="json"),
        "first_seed": selection.seed,
        "min_return": selection.min_return,
    }


class _PlayedEnvironment:
    """The environment with the policy or person that acts in it.

    Stacks of frames are outside of the recorder.
    """

    def __init__(
        self,
        config: EnvConfig,
        demonstrator: Demonstrator | None,
        keyboard: Keyboard | None,
        allow_import: AllowImport | None,
    ) -> None:
        self.id = config.id
        plain = config.model_copy(update={"frame_stack": 0})
        mode = None if keyboard is None else keyboard.render_mode
        with warnings.catch_warnings():
            if mode:
                warnings.simplefilter("ignore")  # Gymnasium's of render modes: ours is an error
            self._guard = ProcessGuard()
            env = self.made = make_env(
                plain, allow_import=allow_import, render_mode=mode, guard=self._guard
            )
        self.person: Takeover | None = None
        try:
            self.bound = find_episode_bound(env)
            if keyboard is not None:
                env = self.person = keyboard.take_over(env)
            self.env: Env
            self.env = self.recorder = EpisodeRecorder(env)
            if config.frame_stack:
                self.env = stack_frames(self.recorder, config.frame_stack)
            self._act = demonstrator.make(self.env) if demonstrator else self._idle
        except BaseException:
            env.close()
            raise

    def _idle(self, obs: Any, *, begins: bool) -> Any:
        assert self.person is not None, "nobody plays"
        return self.person.idle_action

    def play(self, seed: int) -> PlayedEpisode | None:
        """Play an episode; None where the person has ended it, or wants it forgotten."""
        with SlowCall("reset"):
            (obs, _) = self._guard.call(self.env.reset, seed=seed)
        over = False
        begins = True
        while not over and len(self.recorder.rewards) < self.bound:
            action = self._act(obs, begins=begins)
            obs, _, terminated, truncated, _ = self._guard.call(self.env.step, action)
            over = terminated or truncated
            begins = False
            if self.person and (self.person.pop_dropped() or (self.is_left and not over)):
                return None
        return self.recorder.episode()

    @property
    def is_left(self) -> bool:
        """The person has closed the window."""
        return self.person is not None and self.person.closed

    def close(self) -> None:
        self._guard.call(self.env.close)


class _Recording:
    """Plays episodes until enough of them are kept."""

    def __init__(
        self,
        out: Path,
        environment: _PlayedEnvironment,
        writer: MinariWriter,
        selection: EpisodeSelection,
        say: Callable[[str], None],
        interrupts: Interrupts,
    ) -> None:
        self.collected = Collected(out)
        self._interrupts = interrupts
        self._environment = environment
        self._writer = writer
        self._selection = selection
        self._say = say
        self._tried = self._low_in_a_row = 0
        self._every = 1 if environment.person is not None else max(1, selection.episodes // 100)

    def run(self) -> Exception | None:
        """Play; what is kept is written at once. Returns what has failed in the midst of it."""
        try:
            while not self._is_over():
                played = self._environment.play(self._selection.seed + self._tried)
                self._tried += 1
                if played is not None:
                    with self._interrupts.held():
                        self._keep_if_wanted(played)
        except KeyboardInterrupt:
            self.collected.ended = "stopped on request"
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - raised when what is whole has its place
            return error
        finally:
            self._interrupts.hold()
        return None

    def _is_over(self) -> bool:
        if len(self.collected.returns) >= self._selection.episodes:
            return True
        if self._environment.is_left:
            self.collected.ended = "the window was closed"
        elif self._low_in_a_row >= LOW_RETURN_EPISODES_MAX:
            least = self._selection.min_return
            self.collected.ended = (
                f"none of the last {LOW_RETURN_EPISODES_MAX} episodes had a return of {least:g}"
            )
        return bool(self.collected.ended)

    def _keep_if_wanted(self, played: PlayedEpisode) -> None:
        """Write an episode that is selection."""
        self.collected.played += 1
        total = sum(played.rewards)
        steps = len(played.rewards)
        least = self._selection.min_return
        values = played.observations, played.actions
        if not np.isfinite(total) or not _is_finite(values):
            fault = f"episode {self.collected.played} has a value that is not finite"
            raise EnvironmentFaultError(repr(self._environment.id), fault)
        is_kept = least is None or total >= least
        self._low_in_a_row = 0 if is_kept else self._low_in_a_row + 1
        if is_kept:
            self._writer.write([played])
            self.collected.returns.append(total)
            self.collected.lengths.append(steps)
        if self.collected.played % self._every:
            return
        verdict = f"kept, {len(self.collected.returns)} of {self._selection.episodes}"
        said = verdict if is_kept else f"not kept, below {least:g}"
        self._say(f"episode {self.collected.played}: return {total:.4g}, {steps:,} steps: {said}")


def _is_finite(values: Any) -> bool:
    match values:
        case dict():
            return all(map(_is_finite, values.values()))
        case tuple():
            return all(map(_is_finite, values))
        case _:
            return values.dtype.kind != "f" or bool(np.isfinite(values).all())
