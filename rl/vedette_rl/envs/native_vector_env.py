"""A vector of environments that Gymnasium steps as one, in any of its three autoreset modes.

================  ==========================================  ==============================
mode              after an episode's last step                the row that is no transition
================  ==========================================  ==============================
``NEXT_STEP``     the next step resets, its action ignored    that next step
``SAME_STEP``     the observation is the new episode's;       none
                  the last one is ``infos["final_obs"]``
``DISABLED``      nothing: who steps resets, by a mask        none
================  ==========================================  ==============================
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from vedette_rl.core import Columns, Step
from vedette_rl.envs.config import OWN_KEYS, EnvConfig
from vedette_rl.envs.layout import (
    INTERVENTION_KEYS,
    Intervention,
    RewardTransform,
    find_intervention,
    read_vector_flags,
    read_vector_rewards,
    row_of_batch,
)
from vedette_rl.envs.process_guard import ProcessGuard
from vedette_rl.envs.registry import AllowImport, check_own_keys, find_spec, takes
from vedette_rl.envs.slow_calls import SlowCall
from vedette_rl.envs.vector_env import (
    VectorEnvironment,
)
from vedette_rl.errors import EnvironmentFaultError, RlError, UnknownEnvironmentError

VectorEnv = gym.vector.VectorEnv[Any, Any, Any]
_CLIPPING = "reward_clipping"
"""ALE's argument, on by default: returns would be of clipped rewards."""


class NativeVectorEnv(VectorEnvironment):
    """Steps a `gymnasium.vector.VectorEnv`.

    Args:
        envs: closed with this one.
        seed: the seed of the whole vector.
        rewards: the conversion of rewards for transitions.
        guard: calls them.

    Raises:
        UnknownEnvironmentError: it declares no autoreset mode, so it is unknown which of its rows
            are transitions.
    """

    def __init__(
        self,
        envs: VectorEnv,
        *,
        seed: int,
        rewards: RewardTransform | None = None,
        guard: ProcessGuard | None = None,
    ):
        super().__init__(
            envs.single_observation_space, envs.single_action_space, envs.num_envs, rewards
        )
        self._envs = envs
        self._guard = guard or ProcessGuard()
        self._mode = autoreset_mode(envs)
        self._seed: int | None = int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)
        self._resetting = np.zeros(envs.num_envs, np.bool_)
        self._changes_actions = _changes_actions(envs)

    def reset(self) -> Columns:
        with SlowCall("reset"):
            obs, _ = self._guard.call(self._envs.reset, seed=self._seed)
        self._seed = None
        self._current = 0
        self._resetting = np.zeros(len(self), np.bool_)
        self._layout.write_all(self._buffers[0], obs, origin="reset()")
        self._returns.reset()
        return self._buffers[0]

    def step(self, action: NDArray[Any]) -> Step:
        """Step every environment. A row that only reset is not `valid`."""
        action = self._action_column(action)
        batch, reward, terminated, truncated, infos = self._guard.call(
            self._envs.step, self._actions.to_environment(action)
        )
        name = name_of(self._envs)
        reward = read_vector_rewards(name, reward, len(self))
        valid = ~self._resetting
        terminated = read_vector_flags(name, "terminated", terminated, len(self)) & valid
        truncated = read_vector_flags(name, "truncated", truncated, len(self)) & valid
        done = terminated | truncated
        self._rewards.write(reward, self._reward)
        self._returns.add(reward, valid)
        if done.any():
            self._returns.end(done)
        begins = self._write_successors(batch, done, infos)
        return self._outcome(
            action,
            self._interventions(infos, valid) if infos else (),
            terminated,
            truncated,
            valid,
            begins=begins,
        )

    def _interventions(self, infos: dict[str, Any], valid: NDArray[Any]) -> list[Intervention]:
        interventions = _interventions(infos, valid)
        if interventions and self._changes_actions:
            fault = (
                f"a person's action {interventions[0][1]} is in the terms inside of the wrapper "
                f"{self._changes_actions}: put {self._changes_actions} inside of what reports it"
            )
            raise EnvironmentFaultError(name_of(self._envs), fault)
        return interventions

    def _write_successors(self, batch: Any, done: NDArray[Any], infos: dict[str, Any]) -> bool:
        """Write the successors, and the beginnings where some are at hand, which is returned."""
        next_obs = self._buffer(1)
        init_obs = self._buffer(2)
        self._layout.write_all(next_obs, batch, origin="step()")
        if self._mode is AutoresetMode.NEXT_STEP:
            self._resetting = done
            return False
        if not done.any():
            return False
        if self._mode is AutoresetMode.DISABLED:
            with SlowCall("reset"):
                options = {"reset_mask": done.copy()}
                batch, _ = self._guard.call(self._envs.reset, options=options)
        origin = "reset()" if self._mode is AutoresetMode.DISABLED else "step()"
        self._layout.write_all(init_obs, batch, origin=origin, which=done)
        for name, column in init_obs.items():
            column[~done] = next_obs[name][~done]
        if self._mode is AutoresetMode.SAME_STEP:
            self._write_final(next_obs, done, infos)
        return True

    def _write_final(self, next_obs: Columns, done: NDArray[Any], infos: dict[str, Any]) -> None:
        final = final_observations(self._envs, infos)
        for i in np.flatnonzero(done):
            self._layout.write(next_obs, int(i), row_of_batch(final, int(i)), origin="final_obs")

    def attribute(self, name: str) -> Any:
        return getattr(self._envs.unwrapped, name, None)

    def close(self) -> None:
        self._guard.call(self._envs.close)


def _changes_actions(envs: VectorEnv) -> str:
    """The name of a wrapper of vectors that changes actions; "" if there is none."""
    while isinstance(envs, gym.vector.VectorWrapper):
        if isinstance(envs, gym.vector.VectorActionWrapper):
            return type(envs).__name__
        envs = envs.env
    return ""


def _interventions(infos: dict[str, Any], valid: NDArray[Any]) -> list[Intervention]:
    """The interventions in a vector's infos: arrays, each with a mask ``_NAME`` beside it."""
    names = [name for name in INTERVENTION_KEYS if name in infos]
    if not names:
        return []
    interventions = []
    for row in np.flatnonzero(valid).tolist():
        there = [name for name in names if infos.get(f"_{name}", valid)[row]]
        action = find_intervention({name: infos[name][row] for name in there})
        if action is not None:
            interventions.append((row, action))
    return interventions


def make_vector(
    config: EnvConfig,
    count: int,
    allow_import: AllowImport | None = None,
    *,
    render_mode: str | None = None,
) -> VectorEnv:
    """`count` environments as the vector environment that their authors wrote.

    Raises:
        UnknownEnvironmentError: there is none, or it cannot be made as configured.
        ImportNotAllowedError: `allow_import` refused.
    """
    if config.vectorization == "envpool":
        _check_bare(config, _LOOP)
        return EnvPoolVector(config, count)
    spec = copy.copy(find_spec(config, allow_import))
    _check_bare(config, _LOOP if spec.entry_point is not None else "do that in its class")
    if spec.vector_entry_point is None:
        raise UnknownEnvironmentError(
            config.id, "it has no vector form; set env.vectorization to 'loop'"
        )
    if config.max_episode_steps is not None:
        spec.max_episode_steps = config.max_episode_steps
    check_own_keys(config, spec.vector_entry_point, always=("num_envs", "vectorization_mode"))
    spec.kwargs = {**spec.kwargs, **config.kwargs}  # Gymnasium copies them deeply
    if render_mode is not None:
        spec.kwargs["render_mode"] = render_mode
    try:
        if _CLIPPING not in spec.kwargs and takes(spec.vector_entry_point, _CLIPPING):
            spec.kwargs[_CLIPPING] = False
        return gym.make_vec(spec, count, vectorization_mode="vector_entry_point")
    except (gym.error.Error, ImportError, TypeError) as e:
        text = " ".join(str(e).split())
        raise UnknownEnvironmentError(config.id, f"its vector form cannot be made: {text}") from e


_LOOP = "set env.vectorization to 'loop'"


def _check_bare(config: EnvConfig, fix: str) -> None:
    """Check that nothing is asked for that a vector form does not do.

    Args:
        fix: what to do in place of it. An environment that is only a vector has no loop.

    Raises:
        UnknownEnvironmentError: something is; names it and the fix.
    """
    if config.wrappers or config.frame_stack:
        why = "its vector form takes no env.wrappers or env.frame_stack"
        raise UnknownEnvironmentError(config.id, f"{why}; {fix}")
    if config.reset_options:
        why = "its vector form begins episodes by itself, without env.reset_options"
        raise UnknownEnvironmentError(config.id, f"{why}; {fix}")


class EnvPoolVector(VectorEnv):
    """A pool of EnvPool, which takes its seed when it is made: a seeded reset makes a new one.

    Args:
        config: its `id` names EnvPool's task, its `kwargs` are the task's arguments.
        count: environments of the pool.

    Raises:
        UnknownEnvironmentError: EnvPool is not installed, or has no such task.
    """

    def __init__(self, config: EnvConfig, count: int) -> None:
        self._id = config.id
        self.num_envs = count
        self._task = config.name.removeprefix("ALE/")
        check_own_keys(config, None, always=OWN_KEYS)
        self._kwargs = dict(config.kwargs)
        if config.max_episode_steps is not None:
            self._kwargs["max_episode_steps"] = config.max_episode_steps
        if count == 1:
            self._kwargs.setdefault("num_threads", 1)  # of evaluations, many pools beside another
        self._pool = self._make(0)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, **self._pool.metadata}
        self.single_observation_space = self._pool.observation_space  # EnvPool's is of one
        self.single_action_space = self._pool.action_space
        steps = self._pool.config["max_episode_steps"]
        self.spec = gym.envs.registration.EnvSpec(self._id, max_episode_steps=steps)

    def _make(self, seed: int) -> Any:
        try:
            import envpool  # type: ignore[import-not-found, unused-ignore]  # an option
        except ImportError as e:
            why = f"EnvPool is not here ({e}): pip install envpool, or set env.vectorization=loop"
            raise UnknownEnvironmentError(self._id, why) from e
        try:
            return envpool.make_gymnasium(
                self._task, num_envs=self.num_envs, seed=seed, **copy.deepcopy(self._kwargs)
            )
        except (AssertionError, TypeError, ValueError) as e:
            text = " ".join(str(e).split())
            raise UnknownEnvironmentError(self._id, f"EnvPool cannot make it: {text}") from e

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._pool.close()
            self._pool = self._make(int(seed))
        result: tuple[Any, dict[str, Any]] = self._pool.reset(options=options)
        return result

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        result: tuple[Any, Any, Any, Any, dict[str, Any]] = self._pool.step(actions)
        return result

    def render(self) -> Any:  # gymnasium's word for it
        return self._pool.render()

    def close(self, **kwargs: Any) -> None:
        self._pool.close()


def has_vector_form(config: EnvConfig, allow_import: AllowImport | None) -> bool:
    """True if an environment may have a vector form of its own, as it is wrapped."""
    spec = find_spec(config, allow_import)
    wrapped = spec.additional_wrappers or config.wrappers or config.frame_stack
    return spec.vector_entry_point is not None and not wrapped and not config.reset_options


def make_native_vector(
    config: EnvConfig, count: int, allow_import: AllowImport | None
) -> VectorEnv | None:
    """The vector form of an environment; None where it has none that can be played."""
    if not has_vector_form(config, allow_import):
        return None
    try:
        vector = make_vector(config, count, allow_import)
    except RlError:
        return None
    if "autoreset_mode" not in (vector.metadata or {}):
        vector.close()
        return None
    return vector


def autoreset_mode(envs: VectorEnv) -> AutoresetMode:
    """The autoreset mode of `envs`.

    Raises:
        UnknownEnvironmentError: it declares none, so it is unknown which of its rows are
            transitions.
    """
    mode = (envs.metadata or {}).get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError as e:
        modes = ", ".join(f"AutoresetMode.{each.name}" for each in AutoresetMode)
        raise UnknownEnvironmentError(
            name_of(envs),
            f"its vector form says autoreset mode {mode!r}: give metadata['autoreset_mode'] one of "
            f"{modes}, or set env.vectorization to 'loop' if it has single environments, too",
        ) from e


def final_observations(envs: VectorEnv, infos: dict[str, Any]) -> Any:
    """The last observations of episodes that ended in a step that also reset.

    Raises:
        UnknownEnvironmentError: they are not given, so what came after the last action is lost.
    """
    final = infos.get("final_obs", infos.get("final_observation"))  # the second until 1.0
    if final is None:
        raise UnknownEnvironmentError(
            name_of(envs), "it resets in the same step and does not give `final_obs`"
        )
    return final


def name_of(envs: VectorEnv) -> str:
    """The name of `envs` for messages."""
    return envs.spec.id if envs.spec is not None else type(envs).__name__


class SingleOfVector(gym.Env[Any, Any]):
    """A vector environment of one as a plain environment, so that evaluations play as actors do."""

    def __init__(self, envs: VectorEnv) -> None:
        self.vector = envs
        self._mode = autoreset_mode(envs)
        self.observation_space = envs.single_observation_space
        self.action_space = envs.single_action_space
        self.metadata = dict(envs.metadata)
        self.render_mode = envs.render_mode
        self.spec = envs.spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        batch, infos = self.vector.reset(seed=seed, options=options)
        return row_of_batch(batch, 0), infos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        actions = np.asarray([action], dtype=self.vector.single_action_space.dtype)
        batch, rewards, terminated, truncated, infos = self.vector.step(actions)
        (reward,) = read_vector_rewards(name_of(self.vector), rewards, 1)
        over = bool(terminated[0]), bool(truncated[0])
        if self._mode is AutoresetMode.SAME_STEP and any(over):
            batch = final_observations(self.vector, infos)
        return row_of_batch(batch, 0), float(reward), *over, infos

    def render(self) -> Any:  # gymnasium's word for it
        frames = self.vector.render()
        return frames[0] if frames is not None else None

    def close(self) -> None:
        self.vector.close()
