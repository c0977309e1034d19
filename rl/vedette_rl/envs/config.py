"""The configuration of the environment."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    JsonValue,
    PositiveInt,
    field_validator,
)

from vedette_rl.settings_part import SettingsPart
from vedette_rl.stored_settings import IN_SAMPLES, IN_WEIGHTS

Kwargs = dict[str, JsonValue]
_OWN_KEYS = {
    "id": "env.id",
    "max_episode_steps": "env.max_episode_steps",
    "disable_env_checker": "nothing: the checker runs once, when a run starts",
    "vectorization_mode": "env.vectorization",
    "num_envs": "actors.envs_per_actor",
}


_ALE_STACK = 4  # of ALE's own vector form, by default


class WrapperConfig(SettingsPart):
    """A wrapper around each environment."""

    place = "env.wrappers"

    name: str
    """``module:Name`` of a `gymnasium.Wrapper`, e.g.
    ``gymnasium.wrappers:FrameStackObservation``."""
    kwargs: Kwargs = {}  # noqa: RUF012 - pydantic copies it
    """its arguments after the environment."""
    training_only: bool = False
    """leave it out of evaluations (clipped rewards, a life as an episode)."""

    @field_validator("name")
    @classmethod
    def _names_module_and_class(cls, name: str) -> str:
        module, _, attribute = name.partition(":")
        if not (module.replace(".", "").isidentifier() and attribute.isidentifier()):
            raise ValueError(f"{name!r} is not of the form module:Name")
        return name


def _wrapper(value: Any) -> Any:  # whatever stood in the file; pydantic checks what comes out
    return {"name": value} if isinstance(value, str) else value


class EnvConfig(SettingsPart):
    """An environment by its name."""

    place = "env"

    id: Annotated[str, IN_SAMPLES, IN_WEIGHTS]
    """as Gymnasium names it: ``CartPole-v1``, or ``my_pkg.envs:MyEnv-v0``, which imports
    `my_pkg.envs` first; or ``my_pkg.envs:MyEnv``, a class or function of that module that makes
    one."""
    kwargs: Annotated[Kwargs, IN_SAMPLES] = {}  # noqa: RUF012 - pydantic copies it
    """arguments of its class or function."""
    max_episode_steps: PositiveInt | None = None
    """truncate episodes here instead of where it is registered to."""
    wrappers: Annotated[
        tuple[Annotated[WrapperConfig, BeforeValidator(_wrapper)], ...], IN_SAMPLES
    ] = ()
    """outermost last; ``module:Name`` or a table with `name` and `kwargs`."""
    frame_stack: Annotated[int, Field(ge=0, le=255), IN_SAMPLES] = 0
    """an observation becomes a stack of this many newest ones, the newest last (Gymnasium's
    `FrameStackObservation`, around all wrappers); 0 is off. The replay stores each frame of stacked
    images once, see `replay.frame_storage`."""
    vectorization: Literal["loop", "vector_entry_point", "envpool", "auto"] = "auto"
    """``loop`` steps single environments, see `stepping`, and wastes no step;
    ``vector_entry_point`` asks Gymnasium for the environment's own vector form; ``auto`` takes that
    form where it plays the same spaces, is not wrapped and is the faster one, and where `id` is a
    class of vector environments. ALE's own form preprocesses, skips and stacks frames by
    `env.kwargs` (`frameskip`, `stack_num`) and takes no wrappers; rewards are left as they are
    unless `env.kwargs.reward_clipping` says otherwise. ``envpool`` takes EnvPool's task of this
    name, ``Pong-v5`` for ``ALE/Pong-v5``, with its arguments in `env.kwargs`, where EnvPool is
    installed."""
    stepping: Literal["auto", "serial", "threads", "processes"] = "auto"
    """how an actor steps its environments, and an evaluation its own: ``serial``, one after
    another; side by side in ``threads``, for simulators whose step waits or computes without
    Python's global lock; or in ``processes``, for others, with 60 MB of memory each. ``auto``
    chooses when a run starts, by the measured time of a step. The same seed gives the same episodes
    in all of them, unless the environments share global state: then use ``processes`` or
    ``serial``."""
    reward_scale: Annotated[float, IN_SAMPLES] = Field(default=1.0, allow_inf_nan=False)
    """rewards in transitions are multiplied by it; not 0."""
    reward_clip: Annotated[float, IN_SAMPLES] = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """then clipped to ±this; 0 is off. Episode returns stay true."""

    @field_validator("id")
    @classmethod
    def _is_a_name(cls, env_id: str) -> str:
        module, colon, name = env_id.rpartition(":")
        if not name or (colon and not module.replace(".", "").isidentifier()):
            raise ValueError(
                f"{env_id!r} is not of the form Name-v0, module:Name-v0 or module:MyEnv"
            )
        return env_id

    @field_validator("reward_scale")
    @classmethod
    def _leaves_something_of_rewards(cls, scale: float) -> float:
        if not scale:
            raise ValueError("0 makes every reward 0, and nothing can be learned")
        return scale

    @field_validator("kwargs")
    @classmethod
    def _leaves_our_keys_alone(cls, kwargs: Kwargs) -> Kwargs:
        for key in kwargs:
            if key in _OWN_KEYS:
                raise ValueError(f"{key!r} is not the constructor's; use {_OWN_KEYS[key]}")
        return kwargs

    @property
    def module(self) -> str | None:
        """The module that the name imports; None where it imports nothing."""
        return self.id.rpartition(":")[0] or None

    @property
    def name(self) -> str:
        """The id without its module: its name in Gymnasium's registry, or that of a class or
        function of the module."""
        return self.id.rpartition(":")[2]

    @property
    def stack(self) -> int:
        """Frames in an observation's stack, as far as the configuration shows it; else 0."""
        if self.frame_stack:
            return self.frame_stack
        for wrapper in reversed(self.wrappers):
            if wrapper.name.endswith(":FrameStackObservation"):
                return _count(wrapper.kwargs.get("stack_size"))
        if self.is_vector_form and self.name.startswith("ALE/"):
            return _count(self.kwargs.get("stack_num", _ALE_STACK))
        return 0

    @property
    def is_vector_form(self) -> bool:
        """True if several environments are one vector of their author's, also a single one."""
        return self.vectorization in ("vector_entry_point", "envpool")

    def for_evaluation(self) -> EnvConfig:
        """The same environment without the settings for training only."""
        wrappers = tuple(wrapper for wrapper in self.wrappers if not wrapper.training_only)
        return self.model_copy(
            update={"wrappers": wrappers, "reward_scale": 1.0, "reward_clip": 0.0}
        )


def _count(value: JsonValue | None) -> int:
    return value if isinstance(value, int) else 0
