"""Environments by name: one, several as a vector, and the spaces of one."""

from __future__ import annotations

import copy
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FrameStackObservation

from vedette_rl.envs.action_masks import find_action_mask
from vedette_rl.envs.call_places import call_places
from vedette_rl.envs.config import EnvConfig, WrapperConfig
from vedette_rl.envs.current_api import check_calls
from vedette_rl.envs.description import EnvDescription, describe_environment
from vedette_rl.envs.executed_actions import convert_executed_actions
from vedette_rl.envs.foreign_environments import explain_made
from vedette_rl.envs.known_wrappers import is_known_wrapper
from vedette_rl.envs.layout import (
    ObservationLayout,
    RewardTransform,
    outside_bounds,
    read_flags,
    read_rewards,
    rounded_away,
)
from vedette_rl.envs.native_vector_env import (
    NativeVectorEnv,
    SingleOfVector,
    VectorEnv,
    has_vector_form,
    make_native_vector,
    make_vector,
)
from vedette_rl.envs.process_guard import ProcessGuard
from vedette_rl.envs.registry import (
    AllowImport,
    check_own_keys,
    find_spec,
    import_environment_module,
    install_hint,
)
from vedette_rl.envs.slow_calls import SlowCall
from vedette_rl.envs.spaces import (
    RESET_CHANGED,
    STEP_CHANGED,
    HasSpaces,
    KnownSpaces,
    Spaces,
    agent_spaces,
    declared_spaces,
    differing_part,
)
from vedette_rl.envs.vector_env import (
    Env,
    EnvGroup,
    LoopVectorEnv,
    SerialEnvs,
    ThreadedEnvs,
    VectorEnvironment,
)
from vedette_rl.errors import (
    CannotRenderError,
    EnvironmentFaultError,
    ImportNotAllowedError,
    SpaceLayoutError,
    UnknownEnvironmentError,
)
from vedette_rl.import_by_name import find_import_names

AUTO_VECTOR_COUNT = 32
"""From how many environments on ``auto`` takes the vector form: CartPole's costs about as much as
12 of the loop's steps whatever their number."""


def make_env(
    config: EnvConfig,
    *,
    allow_import: AllowImport | None = None,
    render_mode: str | None = None,
    check: bool = False,
    guard: ProcessGuard | None = None,
) -> Env:
    """One environment, wrapped as configured.

    Args:
        config: the environment's configuration.
        allow_import: asked before a module named in `config` is imported; None allows all (the
            operator typed it).
        render_mode: as Gymnasium has it, e.g. ``rgb_array``; None renders nothing.
        check: keep Gymnasium's checks of call order and types, which cost more than a small
            environment's step, and refuse what gym's old API gives (`check_calls`).
        guard: calls it, and is to call what is made; None: one of its own.

    Raises:
        UnknownEnvironmentError: nothing of that name can be made here, with the nearest names or
            what to install.
        ImportNotAllowedError: `allow_import` refused.
        CannotRenderError: it can be made, but not with a `render_mode`.
    """
    guard = guard or ProcessGuard()
    with SlowCall("made"):
        return guard.make(
            _make_env, config, allow_import=allow_import, render_mode=render_mode, check=check
        )


def _make_env(
    config: EnvConfig,
    *,
    allow_import: AllowImport | None = None,
    render_mode: str | None = None,
    check: bool = False,
) -> Env:
    """Make an environment as `make_env` says."""
    # A vector form may show other observations, or be all that there is.
    if config.is_vector_form or (spec := find_spec(config, allow_import)).entry_point is None:
        return SingleOfVector(make_vector(config, 1, allow_import, render_mode=render_mode))
    check_own_keys(config, spec.entry_point)
    spec = copy.copy(spec)
    # In the spec, which Gymnasium copies deeply: a constructor may change what it is given, and may
    # have arguments of the same names as `make`.
    spec.kwargs = {**spec.kwargs, **config.kwargs}
    if render_mode is not None:
        spec.kwargs["render_mode"] = render_mode
    if not check:
        spec.order_enforce = False
    try:
        env: Env = gym.make(
            spec,
            max_episode_steps=config.max_episode_steps,
            disable_env_checker=None if check else True,
        )
    except (gym.error.DependencyNotInstalled, ImportError) as e:
        raise UnknownEnvironmentError(config.id, install_hint(e)) from e
    except TypeError as e:
        if "gymnasium.Env" in str(e):
            why = f"what it makes is no gymnasium.Env{explain_made(str(e))}"
            raise UnknownEnvironmentError(config.id, why) from e
        if "argument" not in str(e) or "environment creator" not in str(e):
            raise
        if render_mode is not None and _can_be_made(config, allow_import):
            raise CannotRenderError(config.id, "its constructor takes no render_mode") from e
        raise UnknownEnvironmentError(config.id, _explain_arguments(str(e))) from e
    if check:
        check_calls(env, config.id)
    for place, wrapper in enumerate(config.wrappers):
        with _errors_of_wrapper(place):
            env = _wrap(env, wrapper, config, allow_import)
    env = convert_executed_actions(env)
    if config.frame_stack:
        env = stack_frames(env, config.frame_stack)
    return _WithResetOptions(env, config.reset_options) if config.reset_options else env


class _WithResetOptions(gym.Wrapper[Any, Any, Any, Any]):
    """Gives each reset the options of the configuration, and what its caller adds."""

    def __init__(self, env: Env, options: Mapping[str, Any]) -> None:
        super().__init__(env)
        self._options = options

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        given = copy.deepcopy(dict(self._options))  # the environment may change them
        return self.env.reset(seed=seed, options={**given, **(options or {})})


class _Copied(gym.ObservationWrapper[Any, Any, Any]):
    """Gives observations that the environment does not write again."""

    def observation(self, observation: Any) -> Any:
        return copy.deepcopy(observation)


def stack_frames(env: Env, count: int, **kwargs: Any) -> FrameStackObservation[Any, Any, Any]:
    """Stack the newest observations. Gymnasium's wrapper keeps references: of an environment that
    gives the same array at every step all frames would be the newest."""
    return FrameStackObservation(_Copied(env), count, **kwargs)


def _explain_arguments(error: str) -> str:
    """Say which arguments an environment's constructor needs, or does not take."""
    if missing := re.search(r"missing \d+ required .*?arguments?: (.*?) was raised", error):
        names = re.findall(r"'(\w+)'", missing[1])
        settings = " ".join(f"env.kwargs.{name}=VALUE" for name in names)
        return f"its constructor needs {', '.join(names)}: set {settings}"
    if unknown := re.search(r"unexpected keyword argument '(\w+)'", error):
        return f"its constructor takes no {unknown[1]}: leave env.kwargs.{unknown[1]} out"
    return f"env.kwargs do not fit: {error}"


def _can_be_made(config: EnvConfig, allow_import: AllowImport | None) -> bool:
    try:
        _make_env(config, allow_import=allow_import).close()
    except UnknownEnvironmentError:
        return False
    return True


def make_vector_environment(
    config: EnvConfig,
    count: int,
    seed: int,
    *,
    allow_import: AllowImport | None = None,
    make_processes: MakeProcesses | None = None,
    fits: Callable[[Spaces], bool] | None = None,
) -> VectorEnvironment:
    """Make a vector of `count` environments.

    Args:
        config: the environments' configuration.
        count: E.
        seed: the seed of the whole vector; another actor's vector takes another.
        allow_import: see `make_env`.
        make_processes: see `make_group`.
        fits: tells whether an environment's own vector form has the spaces of the run; None: a
            single one is made to compare them.

    Raises:
        UnknownEnvironmentError, ImportNotAllowedError: as `make_env`.
        SpaceLayoutError: transitions of their spaces have no columns.
    """
    if count < 1:
        raise ValueError(f"a vector has at least one environment, not {count}")
    rewards = RewardTransform(config.reward_scale, config.reward_clip)
    guard = ProcessGuard()
    if config.is_vector_form or (
        config.vectorization == "auto"
        and guard.make(find_spec, config, allow_import).entry_point is None
    ):
        with SlowCall("made"):
            vector = guard.make(make_vector, config, count, allow_import)
        return NativeVectorEnv(vector, seed=seed, rewards=rewards, guard=guard)
    side_by_side = config.stepping in ("threads", "processes")
    many = count >= AUTO_VECTOR_COUNT and not side_by_side
    if config.vectorization == "auto" and many and has_vector_form(config, allow_import):
        native = guard.make(make_native_vector, config, count, allow_import)
        if native is not None:
            if fits:
                same = _fits(native, fits)
            else:
                same = _is_like_single(native, config, allow_import, guard)
            if same:
                return NativeVectorEnv(native, seed=seed, rewards=rewards, guard=guard)
            guard.call(native.close)
    group = make_group(
        config, count, allow_import=allow_import, make_processes=make_processes, guard=guard
    )
    return LoopVectorEnv(group, seed=seed, rewards=rewards, makes_again=True)


def _fits(vector: VectorEnv, fits: Callable[[Spaces], bool]) -> bool:
    """True if a vector form has spaces that fit."""
    try:
        spaces = agent_spaces(vector.single_observation_space, vector.single_action_space)
    except SpaceLayoutError:
        return False
    return fits(spaces)


def _is_like_single(
    vector: VectorEnv,
    config: EnvConfig,
    allow_import: AllowImport | None,
    guard: ProcessGuard,
) -> bool:
    """True if a vector form has the spaces of a single environment, which is made."""
    with closing(make_env(config, allow_import=allow_import, guard=guard)) as single:
        same = vector.single_observation_space == single.observation_space
        return same and vector.single_action_space == single.action_space


MakeProcesses = Callable[[EnvConfig, int], EnvGroup]
"""Makes a group of environments in processes of their own."""


def make_group(
    config: EnvConfig,
    count: int,
    *,
    allow_import: AllowImport | None = None,
    make_processes: MakeProcesses | None = None,
    guard: ProcessGuard | None = None,
) -> EnvGroup:
    """Make `count` single environments that are stepped together as `env.stepping` says.

    Args:
        make_processes: starts environments for ``processes``, which nothing here may start; without
            it they are stepped one after another, with the same results.
        guard: is to call them; None: one of their own.

    Raises:
        UnknownEnvironmentError, ImportNotAllowedError: as `make_env`.
    """
    guard = guard or ProcessGuard()
    make = partial(_make_env, config, allow_import=allow_import)
    stepping = config.stepping if count > 1 else "serial"
    # Processes import what the configuration names without asking anybody.
    if stepping == "processes" and make_processes is not None and allow_import is None:
        return make_processes(config, count)
    group: SerialEnvs | ThreadedEnvs
    if stepping == "threads":
        group = ThreadedEnvs(make, count, guard)
    else:
        group = SerialEnvs([_made(make, guard) for _ in range(count)], make, guard)
    if len({id(env.unwrapped) for env in group.envs}) < count:
        with suppress(Exception):  # it is closed several times
            group.close()
        why = "it gives the same environment at every call: make a new one in it"
        raise UnknownEnvironmentError(config.id, why)
    return group


def _made(make: Callable[[], Env], guard: ProcessGuard) -> Env:
    with SlowCall("made"):
        return guard.make(make)


def probe_environment(config: EnvConfig, *, allow_import: AllowImport | None = None) -> Spaces:
    """The spaces of an environment, seen by making one and closing it again.

    Raises:
        UnknownEnvironmentError, ImportNotAllowedError: as `make_env`.
        SpaceLayoutError, EnvironmentFaultError, CustomNetworkError: as `examine_environment`.
    """
    guard = ProcessGuard()
    env = make_env(config, allow_import=allow_import, check=True, guard=guard)
    try:
        with SlowCall("reset and stepped"):
            return guard.call(examine_environment, env, config)
    finally:
        guard.call(env.close)


def examine_environment(env: Env, config: EnvConfig) -> Spaces:
    """The spaces of an environment, which is reset and stepped once.

    Args:
        env: made by `make_env` with Gymnasium's checks, which warn.

    Raises:
        SpaceLayoutError: transitions of its spaces have no columns, or it changes them, or it gives
            observations of another shape than its space, or a value that its dtype cannot hold.
        EnvironmentFaultError: the reward is not one number, or it or an observation is not finite:
            no learner would take it.
        CustomNetworkError: a network of its `FrozenEncoder` has random weights.
    """
    _refuse_random_weights(env)
    description = describe_environment(env)
    spaces = described_spaces(description, config)
    places = call_places(env)
    layout = ObservationLayout(env.observation_space, places)
    known = KnownSpaces(copy.deepcopy(description))  # it may change them in place
    env.action_space.seed(0)
    with np.errstate(over="ignore"):  # what float32 cannot hold is found below
        first, info = env.reset(seed=0)
        known.check(env, RESET_CHANGED)
        _check_finite(config, "reset()", layout.encode(first, origin="reset()"), places)
        first = copy.deepcopy(first)  # the environment may write it again
        obs, _ = _checked_step(env, config, layout, places)
        known.check(env, STEP_CHANGED)
        _warn_of_outside_bounds(layout, first, obs)
        if env.render_mode == "human":
            warnings.warn(
                "render_mode=human draws every step of training, in each copy of the environment "
                "and at its frame rate: leave env.kwargs.render_mode out",
                stacklevel=2,
            )
        if mask := find_action_mask(env, info):
            warnings.warn(
                f"{mask} says which actions are allowed, and is no mask here: agents choose among "
                "all. Have the environment, or a wrapper in env.wrappers, answer others by a cost",
                stacklevel=2,
            )
        if text := rounded_away(layout, first, obs):
            warnings.warn(text, stacklevel=2)
    return spaces


@dataclass(frozen=True, slots=True)
class TrialPlay:
    """What was played of an environment to see whether it fails, and its spaces."""

    spaces: Spaces
    steps: int
    episodes: int


def try_environment(config: EnvConfig, *, steps: int, seconds: float) -> TrialPlay:
    """Make an environment and play random actions in it; close it again.

    Args:
        steps, seconds: it ends at the first of the two.

    Raises:
        as `probe_environment`, in any step of it; whatever the environment raises. A note names the
        step.
    """
    guard = ProcessGuard()
    env = make_env(config, check=True, guard=guard)
    try:
        with SlowCall("reset and stepped"):
            spaces = guard.call(examine_environment, env, config)
        return guard.call(_play_trial, env, config, spaces, steps, time.monotonic() + seconds)
    finally:
        guard.call(env.close)


def _play_trial(
    env: Env, config: EnvConfig, spaces: Spaces, most: int, deadline: float
) -> TrialPlay:
    places = call_places(env)
    layout = ObservationLayout(env.observation_space, places)
    steps = 1  # when it was examined
    episodes = 0
    ended = True
    with np.errstate(over="ignore"):
        while steps < most and time.monotonic() < deadline:
            try:
                if ended:
                    first, _ = env.reset()
                    _check_finite(config, "reset()", layout.encode(first, origin="reset()"), places)
                _, ended = _checked_step(env, config, layout, places)
            except Exception as error:
                error.add_note(f"in step {steps + 1:,} of random actions")
                raise
            steps += 1
            episodes += ended
    return TrialPlay(spaces, steps, episodes)


def _checked_step(
    env: Env, config: EnvConfig, layout: ObservationLayout, places: Mapping[str, str]
) -> tuple[Any, bool]:
    """Take a random action; return the observation, and whether the episode ended.

    Raises:
        SpaceLayoutError, EnvironmentFaultError: as `examine_environment`.
    """
    obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    read_flags(env, (terminated,), (truncated,))
    (number,) = read_rewards(env, (reward,))
    stored = layout.encode(obs, origin="step()")
    _check_finite(config, "step()", {**stored, "reward": np.float32(number)}, places)
    return obs, bool(terminated or truncated)


def _warn_of_outside_bounds(layout: ObservationLayout, first: Any, following: Any) -> None:
    for origin, obs in (("reset()", first), ("step()", following)):
        if text := outside_bounds(layout, obs):
            warnings.warn(
                f"{origin} gave an observation whose {text}: numbers are stored as they are; "
                "declare the bounds that the environment keeps",
                stacklevel=2,
            )
            return  # once is enough


def vector_of_one(env: Env, config: EnvConfig, seed: int) -> VectorEnvironment:
    """An environment that is made as a vector of one, which closes it."""
    rewards = RewardTransform(config.reward_scale, config.reward_clip)
    if isinstance(env, SingleOfVector):
        return NativeVectorEnv(env.vector, seed=seed, rewards=rewards)
    return LoopVectorEnv(SerialEnvs([env]), seed=seed, rewards=rewards)


def described_spaces(env: EnvDescription, config: EnvConfig) -> Spaces:
    """The spaces of environments that are made, as agents see them.

    Raises:
        SpaceLayoutError: transitions of these spaces have no columns.
    """
    stack = count_stacked_frames(env, config)
    return agent_spaces(env.observation_space, env.action_space, stack=stack)


def _refuse_random_weights(env: Env) -> None:
    """Check the networks of wrappers such as `FrozenEncoder`: here, because it makes each again."""
    while isinstance(env, gym.Wrapper):
        if check := getattr(env, "refuse_random_weights", None):
            check()
        env = env.env


def environment_spaces(config: EnvConfig, *, allow_import: AllowImport | None = None) -> Spaces:
    """The declared spaces; where none are, those that `probe_environment` sees."""
    return declared_spaces(config) or probe_environment(config, allow_import=allow_import)


def environment_action_space(
    config: EnvConfig, *, allow_import: AllowImport | None = None
) -> gym.Space[Any]:
    """The space of actions as the environment names them, from its `start`; `environment_spaces`
    gives it as agents see it. It raises what `make_env` raises."""
    if config.action is not None:
        return config.action.build()
    guard = ProcessGuard()
    env = make_env(config, allow_import=allow_import, guard=guard)
    try:
        return env.action_space
    finally:
        guard.call(env.close)


def environment_own_spaces(config: EnvConfig, *, allow_import: AllowImport | None = None) -> Spaces:
    """As `environment_spaces`, but for actions, which are as the environment names them, from their
    `start`. One environment is made for both, unless they are declared.

    Raises: as `probe_environment`.
    """
    own = config.action.build() if config.action is not None else None
    declared = declared_spaces(config)
    if declared is not None and own is not None:
        return replace(declared, action=own)
    guard = ProcessGuard()
    env = make_env(config, allow_import=allow_import, check=True, guard=guard)
    try:
        with SlowCall("reset and stepped"):
            spaces = guard.call(examine_environment, env, config)
        return replace(spaces, action=env.action_space if own is None else own)
    finally:
        guard.call(env.close)


def _check_finite(
    config: EnvConfig, came_from: str, columns: Mapping[str, Any], places: Mapping[str, str]
) -> None:
    place = f" ({places[came_from]})" if places[came_from] else ""
    for name, column in columns.items():
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            raise EnvironmentFaultError(
                config.id,
                f"{came_from} gave {name!r} with a value that is not finite as {column.dtype}: "
                f"no learner takes that; fix it, or wrap it by env.wrappers{place}",
            )


def _wrap(
    env: Env, wrapper: WrapperConfig, config: EnvConfig, allow_import: AllowImport | None
) -> Env:
    for inner in find_import_names(wrapper.kwargs):
        inner_module = inner.partition(":")[0]
        if allow_import is not None and not allow_import(inner_module):
            raise ImportNotAllowedError(inner_module, config.id)
    wrapper_type = _find_wrapper(wrapper, config, allow_import)
    stacks = wrapper_type is FrameStackObservation
    kwargs = copy.deepcopy(wrapper.kwargs)  # the wrapper may change them
    try:
        wrapped = wrapper_type(_Copied(env) if stacks else env, **kwargs)
    except gym.error.DependencyNotInstalled as e:
        raise UnknownEnvironmentError(config.id, install_hint(e)) from e
    except TypeError as e:
        raise UnknownEnvironmentError(config.id, f"wrapper {wrapper.name!r}: {e}") from e
    if wrapper.training_only:
        _check_same_spaces(config, wrapper, env, wrapped)
    return wrapped


def _check_same_spaces(
    config: EnvConfig, wrapper: WrapperConfig, inside: HasSpaces, outside: HasSpaces
) -> None:
    """Check that evaluations, which leave a wrapper out, play in the spaces that training has.

    Raises:
        UnknownEnvironmentError: they do not; names the wrapper and the part.
    """
    without, with_it = (
        Spaces(env.observation_space, env.action_space) for env in (inside, outside)
    )
    if part := differing_part(without, with_it):
        here, there = (getattr(spaces, part) for spaces in (with_it, without))
        fault = (
            f"wrapper {wrapper.name!r} is training_only and changes the {part} space: training has "
            f"{here}, and evaluations, which leave it out, have {there}; leave training_only out"
        )
        raise UnknownEnvironmentError(config.id, fault)


def _find_wrapper(
    wrapper: WrapperConfig, config: EnvConfig, allow_import: AllowImport | None
) -> type[gym.Wrapper[Any, Any, Any, Any]]:
    """Import the class of a wrapper.

    Raises:
        UnknownEnvironmentError: there is none of that name.
        ImportNotAllowedError: `allow_import` refused.
    """
    module_name, _, attribute = wrapper.name.partition(":")
    asked = None if is_known_wrapper(wrapper.name) else allow_import
    module = import_environment_module(module_name, config, asked)
    wrapper_type = getattr(module, attribute, None)
    if not (isinstance(wrapper_type, type) and issubclass(wrapper_type, gym.Wrapper)):
        raise UnknownEnvironmentError(config.id, f"{wrapper.name!r} is no gymnasium.Wrapper")
    return wrapper_type


def find_environment(config: EnvConfig) -> None:
    """Import the environment and the wrappers that a configuration names; none is made.

    Raises:
        UnknownEnvironmentError: nothing of that name can be imported here.
    """
    find_spec(config)
    for place, wrapper in enumerate(config.wrappers):
        with _errors_of_wrapper(place):
            _find_wrapper(wrapper, config, None)


@contextmanager
def _errors_of_wrapper(place: int) -> Iterator[None]:
    """Name a wrapper's key in its errors: they are not those of `env.id`."""
    try:
        yield
    except UnknownEnvironmentError as error:
        error.key = f"env.wrappers.{place}"
        raise


def count_stacked_frames(env: EnvDescription, config: EnvConfig) -> int:
    """The number of frames that an observation of `env` is a stack of; 0: of none, or unknown.

    Gymnasium's `FrameStackObservation` is found wherever it is, and ALE's vector form stacks, too.
    """
    space = env.observation_space
    if not isinstance(space, gym.spaces.Box) or len(space.shape) < 2:
        return 0
    frames = space.shape[0]
    if frames > 1 and frames in (env.wrapped_stack, config.stack):
        return frames
    return 0
