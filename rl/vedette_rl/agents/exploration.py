"""Exploration of actors that choose among finitely many actions. No torch.

Shapes: E environments, A actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, NonNegativeInt, PositiveFloat

from vedette_rl.agents.config import EnvSteps
from vedette_rl.core.protocols import implements
from vedette_rl.errors import UnknownNameError
from vedette_rl.import_by_name import choice_or_import, import_by_name, is_import_name
from vedette_rl.settings.part import SettingsPart

LADDER_ABOVE = 32
"""Environments: above, ``auto`` is ``ladder``, whose few rungs of a small fleet never are random at
the start."""

_KIND = "agent.exploration.kind"
_DRAWN_NUMBERS = 1024

Probability = Annotated[float, Field(ge=0.0, le=1.0)]


class ExplorationConfig(SettingsPart):
    """The exploration of actors. Evaluation never explores."""

    model_config = ConfigDict(allow_inf_nan=False)
    place = "agent.exploration"
    synonyms: ClassVar[Mapping[str, str]] = {
        "kind": "exploration explorer exploration_type",
        "epsilon_base": "eps_base",
        "epsilon_alpha": "eps_alpha",
        "epsilon_start": "exploration_initial_eps start_e eps_start initial_epsilon",
        "epsilon_final": "exploration_final_eps end_e eps_end final_epsilon eps epsilon eps_final "
        "epsilon_end min_epsilon",
        "epsilon_steps": "exploration_fraction exploration_steps epsilon_decay eps_decay "
        "epsilon_timesteps",
    }

    kind: Annotated[str, choice_or_import("auto", "ladder", "linear", "constant", "softmax")] = (
        "auto"
    )
    """``auto``: ``linear`` for a fleet of up to 32 environments, ``ladder`` for a larger one; a run
    saves which it is. ``ladder``: each environment keeps an epsilon of its own between
    ``epsilon_base`` and ``epsilon_base ** (1 + epsilon_alpha)`` (Ape-X, Horgan et al. 2018, section
    4). Epsilons stay evenly spaced as environments join, and none has exactly the least or the
    greatest: 8 environments have 0.27 to 0.0015, one alone has 0.016. ``linear``: one epsilon for
    all, which falls from ``epsilon_start`` to ``epsilon_final`` over the first ``epsilon_steps``
    versions of the model, so that all actors share one clock. ``constant``: ``epsilon_final``
    always. ``softmax``: actions drawn with probability proportional to exp(q / ``temperature``).
    ``module:Name``: a class of your own, made and called as `Exploration` is."""
    epsilon_base: Annotated[float, Field(gt=0.0, le=1.0)] = 0.4
    """the ladder's first rung (0.4: Ape-X)."""
    epsilon_alpha: Annotated[float, Field(ge=0.0)] = 7.0
    """steepness of the ladder (7: Ape-X)."""
    epsilon_start: Probability = 1.0
    """start of the linear schedule (1: Mnih et al. 2015, table 1); with the weights of another run
    (`learner.init_from`) it is `epsilon_final`, unless this is set."""
    epsilon_final: Probability = 0.05
    """end of the linear schedule (0.1 in Mnih et al. 2015; 0.01 in Rainbow; 0.02 in border; 0.05 in
    Stable-Baselines3, for small tasks)."""
    epsilon_steps: Annotated[NonNegativeInt, EnvSteps("epsilon falls over {}", 10_000, 625)] = 5_000
    """optimization steps until it ends. Where it is not set, those of 10,000 environment steps; of
    625 for each environment of a larger fleet."""
    temperature: PositiveFloat = 1.0
    """the unit of q in ``softmax`` (1: border)."""


def exploration_rank(index: int) -> float:
    """The exploration rank in (0, 1) of the environment of this number (from 0, over all actors).

    A van der Corput sequence: 1/2, 1/4, 3/4, 1/8, ... However many environments have joined, their
    ranks cover (0, 1) evenly, no rank changes when another joins or leaves, and one alone is in the
    middle.
    """
    number = index + 1
    position = 0.0
    digit = 0.5
    while number:
        position += digit * (number & 1)
        number >>= 1
        digit /= 2
    return position


def exploration_ranks(first: int, count: int) -> NDArray[np.float64]:
    """The ranks ``(count,)`` of environments `first`, `first` + 1, ..."""
    return np.array([exploration_rank(first + i) for i in range(count)])


class ExplorationStrategy(Protocol):
    """Chooses actions while an actor collects."""

    def choose(self, q_EA: NDArray[np.float32], version: int) -> NDArray[np.int64]:
        """Actions ``(E,)`` in [0, A) from action values of a model of this version."""
        ...


def make_exploration(
    config: ExplorationConfig, ranks: NDArray[np.floating[Any]], seed: int
) -> ExplorationStrategy:
    """The exploration that a configuration asks for; the arguments are those of `Exploration`.

    Raises:
        UnknownNameError: its custom class is not there, or cannot choose.
    """
    if not is_import_name(config.kind):
        return Exploration(config, ranks, seed)
    strategy = import_by_name(_KIND, config.kind)(config, ranks, seed)
    if not implements(strategy, ExplorationStrategy):
        raise UnknownNameError(_KIND, config.kind, "it has no method choose")
    return _CheckedExploration(strategy, config.kind)


class _CheckedExploration:
    """A custom exploration, whose actions are checked before an environment gets them."""

    def __init__(self, strategy: ExplorationStrategy, name: str) -> None:
        self._strategy = strategy
        self._name = name

    def choose(self, q_EA: NDArray[np.float32], version: int) -> NDArray[np.int64]:
        """Actions ``(E,)`` in [0, A).

        Raises:
            UnknownNameError: what it chose are no such actions.
        """
        action = np.asarray(self._strategy.choose(q_EA, version))
        rows, actions = q_EA.shape
        if action.shape != (rows,) or action.dtype.kind not in "iu":
            got = f"{action.dtype} of shape {action.shape}"
            wrong = f"its choose must return a whole number for each of {rows} environments"
            raise UnknownNameError(_KIND, self._name, f"{wrong}, not {got}")
        if action.min() < 0 or action.max() >= actions:
            wrong = f"its choose must return actions from 0 to {actions - 1}"
            raise UnknownNameError(_KIND, self._name, f"{wrong}, not {action.tolist()}")
        return action.astype(np.int64, copy=False)


class Exploration:
    """Chooses actions for a vector of environments from their action values.

    Args:
        config: how much to explore.
        ranks: ``(E,)`` in [0, 1], the exploration ranks of the environments.
        seed: the seed of the random numbers.
    """

    def __init__(
        self, config: ExplorationConfig, ranks: NDArray[np.floating[Any]], seed: int
    ) -> None:
        self._config = config
        self._rng = np.random.default_rng(seed)
        rungs = 1.0 + config.epsilon_alpha * np.asarray(ranks, np.float64)
        self._ladder = np.power(config.epsilon_base, rungs)
        self._ones = np.ones(len(ranks))
        self._epsilon = self._ones
        self._epsilon_version: int | None = None  # of `_epsilon`; None: it was not asked for
        self._drawn = _RandomDraws(self._rng, len(ranks))

    def epsilon(self, version: int) -> NDArray[np.float64]:
        """The share of random actions ``(E,)`` on a model of this version; 0 for softmax.

        Raises:
            UnknownNameError: this is a subclass without one of its own.
        """
        config = self._config
        match config.kind:
            case "ladder":
                return self._ladder
            case "linear" | "auto":
                done = min(1.0, version / config.epsilon_steps) if config.epsilon_steps else 1.0
                epsilon = config.epsilon_start + done * (
                    config.epsilon_final - config.epsilon_start
                )
                return epsilon * self._ones
            case "constant":
                return config.epsilon_final * self._ones
            case "softmax":
                return 0.0 * self._ones
            case _:
                why = (
                    "Exploration.choose does not know how much it explores: define "
                    "epsilon(self, version) in the class, which returns the share of random "
                    "actions of each environment"
                )
                raise UnknownNameError(_KIND, config.kind, why)

    def choose(self, q_EA: NDArray[np.float32], version: int) -> NDArray[np.int64]:
        """Actions ``(E,)`` in [0, A)."""
        if self._config.kind == "softmax":
            # argmax(x + Gumbel noise) draws from softmax(x), and needs no sum over exp(x)
            noise_EA = self._rng.gumbel(size=q_EA.shape)
            drawn: NDArray[np.int64] = np.argmax(q_EA / self._config.temperature + noise_EA, axis=1)
            return drawn
        rows, actions = q_EA.shape
        if version != self._epsilon_version:
            self._epsilon = self.epsilon(version)
            self._epsilon_version = version
        action: NDArray[np.int64] = q_EA.argmax(1)
        chance, other = self._drawn.next(rows, actions)
        np.copyto(action, other, where=chance < self._epsilon)
        return action


class _RandomDraws:
    """Random numbers for a vector of environments, drawn for many steps at once.

    Drawing a few costs as much as drawing a thousand.
    """

    def __init__(self, rng: np.random.Generator, rows: int) -> None:
        self._rng = rng
        self._steps = max(1, _DRAWN_NUMBERS // max(1, rows))
        self._at = self._steps
        self._shape = (0, 0)

    def next(self, rows: int, actions: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Chances in [0, 1) and actions in [0, A), each ``(rows,)``."""
        if self._at == self._steps or self._shape != (rows, actions):
            self._at = 0
            self._shape = (rows, actions)
            self._chances = self._rng.random((self._steps, rows))
            self._actions = self._rng.integers(actions, size=(self._steps, rows))
        at = self._at
        self._at = self._at + 1
        return self._chances[at], self._actions[at]
