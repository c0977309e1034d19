"""The configuration of the environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BeforeValidator,
    Field,
    PositiveInt,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from vedette_rl.import_by_name import module_of_file
from vedette_rl.settings.part import SettingsPart
from vedette_rl.settings.plain_values import Kwargs
from vedette_rl.settings.stored import IN_BEST, IN_SAMPLES, IN_WEIGHTS

UNNAMED = "external"
"""`EnvConfig.id` where spaces are declared and no environment is named."""


OWN_KEYS = {
    "id": "env.id",
    "max_episode_steps": "env.max_episode_steps",
    "disable_env_checker": "nothing: the checker runs once, when a run starts",
    "vectorization_mode": "env.vectorization",
    "num_envs": "actors.envs_per_actor",
}
"""Arguments of Gymnasium's `make` and `make_vec`, and what says it here. A constructor may have one
of that name."""


_ALE_STACK = 4  # of ALE's own vector form, by default


class WrapperConfig(SettingsPart):
    """A wrapper around each environment."""

    place = "env.wrappers"

    name: str
    """``module:Name`` of a `gymnasium.Wrapper`, e.g.
    ``gymnasium.wrappers:FrameStackObservation``."""
    kwargs: Kwargs = {}  # noqa: RUF012 - pydantic copies it
    """arguments of the wrapper after the environment."""
    training_only: bool = False
    """leave it out of evaluations (clipped rewards, a life as an episode)."""

    @field_validator("name")
    @classmethod
    def _names_module_and_class(cls, name: str) -> str:
        module, _, attribute = name.partition(":")
        if not (module.replace(".", "").isidentifier() and attribute.isidentifier()):
            raise ValueError(f"{name!r} is not of the form module:Name")
        return name


Dtype = Literal[
    "float16",
    "float32",
    "float64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
]
Bound = float | tuple[float, ...]
_Part = Annotated["SpaceConfig", WithJsonSchema({"type": "object"})]
_KEYS_OF = {
    "box": ("shape", "low", "high", "dtype"),
    "discrete": ("n", "start"),
    "multi_discrete": ("nvec",),
    "dict": ("spaces",),
}
_NEEDED = {"box": "shape", "discrete": "n", "multi_discrete": "nvec", "dict": "spaces"}


class SpaceConfig(SettingsPart):
    """A space that is declared and not made, in Gymnasium's terms."""

    place = "space"

    space: Annotated[Literal["box", "discrete", "multi_discrete", "dict"], IN_SAMPLES, IN_WEIGHTS]
    """the kind of space; the other keys are its arguments."""
    shape: Annotated[tuple[PositiveInt, ...] | None, IN_SAMPLES, IN_WEIGHTS] = None
    """for a box: its dimensions, such as ``[4]`` or ``[4, 84, 84]``."""
    low: Annotated[Bound | None, IN_SAMPLES] = None
    """for a box: a number, or a list with one for each number of it in row-major order. Where it is
    not set there is no bound but that of the dtype."""
    high: Annotated[Bound | None, IN_SAMPLES] = None
    """for a box: likewise."""
    dtype: Annotated[Dtype | None, IN_SAMPLES, IN_WEIGHTS] = None
    """for a box: ``float32`` where it is not set; ``uint8`` for images."""
    n: Annotated[PositiveInt | None, IN_SAMPLES, IN_WEIGHTS] = None
    """for a discrete space: how many values it has."""
    start: Annotated[int | None, IN_SAMPLES] = None
    """for a discrete space: its first value; 0 where it is not set."""
    nvec: Annotated[tuple[PositiveInt, ...] | None, IN_SAMPLES, IN_WEIGHTS] = None
    """for a multi_discrete space: how many values each dimension has."""
    spaces: Annotated[dict[str, _Part] | None, IN_SAMPLES, IN_WEIGHTS] = None
    """for a dict: a table for each part, with the keys of this one."""

    @field_validator("low", "high", mode="before")
    @classmethod
    def _reads_infinity_in_json(cls, bound: Any, info: ValidationInfo) -> Any:  # whatever it is
        infinite = -math.inf if info.field_name == "low" else math.inf
        is_list = isinstance(bound, (list, tuple))
        return tuple(infinite if x is None else x for x in bound) if is_list else bound

    @model_validator(mode="after")
    def _has_its_keys(self) -> SpaceConfig:
        given = {name for name in self.model_fields_set if getattr(self, name) is not None}
        if foreign := sorted(given - {"space", *_KEYS_OF[self.space]}):
            raise ValueError(
                f"{self.space} takes {', '.join(_KEYS_OF[self.space])}, not {foreign[0]}"
            )
        needed = _NEEDED[self.space]
        if getattr(self, needed) is None or (needed != "shape" and not getattr(self, needed)):
            raise ValueError(f"{self.space} needs {needed}")
        if self.space == "box":
            low, high = (np.asarray(bound) for bound in (self._bound("low"), self._bound("high")))
            if not (low < high).any() or (low > high).any():
                raise ValueError(f"low {self.low} is not below high {self.high}")
        return self

    def _bound(self, side: Literal["low", "high"]) -> NDArray[Any]:
        """Return one bound of a box as an array."""
        dtype: np.dtype[Any] = np.dtype(self.dtype or "float32")
        shape = self.shape or ()
        bound: Bound | None = getattr(self, side)
        if bound is None and dtype.kind == "f":
            bound = -np.inf if side == "low" else np.inf
        elif bound is None:
            limits: Any = np.iinfo(dtype)
            bound = limits.min if side == "low" else limits.max
        if isinstance(bound, tuple) and len(bound) != math.prod(shape):
            raise ValueError(
                f"{side} has {len(bound)} numbers, and a box of {list(shape)} has "
                f"{math.prod(shape)}"
            )
        given = np.asarray(bound)
        with np.errstate(invalid="ignore", over="ignore"):
            cast = given.astype(dtype)
        if dtype.kind != "f" and (given != cast).any():
            raise ValueError(f"{side} {bound} is no {dtype}")
        return cast.reshape(shape) if cast.ndim else np.full(shape, cast)

    def build(self) -> gym.Space[Any]:
        """Return the space."""
        match self.space:
            case "box":
                dtype: Any = np.dtype(self.dtype or "float32").type
                return gym.spaces.Box(self._bound("low"), self._bound("high"), dtype=dtype)
            case "discrete":
                return gym.spaces.Discrete(self.n or 1, start=self.start or 0)
            case "multi_discrete":
                return gym.spaces.MultiDiscrete(list(self.nvec or ()))
            case "dict":
                parts = self.spaces or {}
                return gym.spaces.Dict({name: part.build() for name, part in parts.items()})


def _wrapper(value: Any) -> Any:  # whatever stood in the file; pydantic checks what comes out
    return {"name": value} if isinstance(value, str) else value


class EnvConfig(SettingsPart):
    """An environment by its name."""

    place = "env"
    synonyms: ClassVar[Mapping[str, str]] = {
        "id": "env environment env_id env_name environment_name env_type game",
        "kwargs": "env_kwargs env_args env_config",
        "reset_options": "options reset_kwargs reset_args",
        "max_episode_steps": "max_episode_length episode_length horizon max_ep_len episode_limit",
        "wrappers": "wrapper frame_skip",
        "frame_stack": "stack_size num_stack framestack",
        "reward_clip": "clip_reward clip_rewards reward_clipping",
        "reward_scale": "reward_scaling reward_scale_factor",
        "vectorization": "vectorization_mode vector vec_env",
    }

    id: Annotated[str, IN_SAMPLES, IN_WEIGHTS]
    """as Gymnasium names it: ``CartPole-v1``, or ``my_pkg.envs:MyEnv-v0``, which imports
    `my_pkg.envs` first; or ``my_pkg.envs:MyEnv``, a class or function of that module that makes
    one."""
    observation: SpaceConfig | None = None
    """the observation of one environment as agents see it, after all wrappers. Where both spaces
    are declared the learner neither imports nor makes the environment, and `id` is only a name for
    the actors, whose own environments are compared with this."""
    action: SpaceConfig | None = None
    """the action of one environment; agents count discrete ones from 0."""
    kwargs: Annotated[Kwargs, IN_SAMPLES, IN_BEST] = {}  # noqa: RUF012 - pydantic copies it
    """arguments of its class or function."""
    reset_options: Annotated[Kwargs, IN_SAMPLES, IN_BEST] = {}  # noqa: RUF012 - pydantic copies it
    """what each `reset` is given as its `options`: a map, a difficulty. Vector forms reset by
    themselves, without it; ``auto`` takes none where it is set."""
    max_episode_steps: Annotated[PositiveInt | None, IN_BEST] = None
    """truncate episodes here instead of where it is registered to."""
    wrappers: Annotated[
        tuple[Annotated[WrapperConfig, BeforeValidator(_wrapper)], ...], IN_SAMPLES, IN_BEST
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
    chooses when a run starts, by the measured time of a step and of a reset. The same seed gives
    the same episodes in all of them, unless the environments share global state: then use
    ``processes`` or ``serial``."""
    reward_scale: Annotated[float, IN_SAMPLES] = Field(default=1.0, allow_inf_nan=False)
    """rewards in transitions are multiplied by it; not 0."""
    reward_clip: Annotated[float, IN_SAMPLES] = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """rewards in transitions are then clipped to ±this; 0 is off. Episode returns stay true."""

    @model_validator(mode="after")
    def _declares_both_spaces(self) -> EnvConfig:
        if (self.observation is None) != (self.action is None):
            missing = "action" if self.action is None else "observation"
            raise ValueError(f"env.{missing} is missing: declare both spaces, or neither")
        return self

    @property
    def is_declared(self) -> bool:
        """True if the spaces are declared, and not those of an environment that is made."""
        return self.observation is not None

    @field_validator("id")
    @classmethod
    def _is_a_name(cls, env_id: str) -> str:
        module, colon, name = env_id.rpartition(":")
        if of_file := module_of_file(module or name):
            own = f"{of_file}:{name if colon else 'MyEnv'}"
            raise ValueError(
                f"{env_id!r} names a file: write {own!r}, the module and what is in it"
            )
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

    @property
    def training_wrappers(self) -> str:
        """The classes of the wrappers for training only, as a list in words; "" for none."""
        return ", ".join(w.name.rpartition(":")[2] for w in self.wrappers if w.training_only)

    def for_evaluation(self) -> EnvConfig:
        """The same environment without the settings for training only."""
        wrappers = tuple(wrapper for wrapper in self.wrappers if not wrapper.training_only)
        return self.model_copy(
            update={"wrappers": wrappers, "reward_scale": 1.0, "reward_clip": 0.0}
        )


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
