"""The default start with a slow simulator, beside shapes (actors x environments) chosen by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.daemons import NOT_TRAINING, ask, check_actors, learner_of, measured, run_actors
from bench.measuring import summarize_rounds
from vedette_services.config.loading import LoadedConfig, load_config

_WARM_S = 2.0
_BY_HAND = (
    *((count, 16 // count, "serial") for count in (1, 2, 4, 8, 16)),
    *((count, 16 // count, "threads") for count in (1, 2, 4)),
)


@dataclass(frozen=True, slots=True)
class ShapesBench:
    """Counts environment steps in the replay of a learner that does not train.

    Args:
        sleep_s: an environment's step sleeps so long.
        seconds: of a round.
        rounds: of each shape, all from one start.
        by_hand: actors, environments of each, and `env.stepping`.
    """

    sleep_s: float = 0.02
    seconds: float = 5.0
    rounds: int = 3
    by_hand: Sequence[tuple[int, int, str]] = _BY_HAND

    def run(self) -> dict[str, Any]:
        """Measure the default first."""
        default = self._load()
        steps_per_s = {"default": self._measure(default)}
        for count, envs, stepping in self.by_hand:
            own = self._load(
                f"actors.count={count}", f"actors.envs_per_actor={envs}", f"env.stepping={stepping}"
            )
            steps_per_s[f"{count} x {envs}, {stepping}"] = self._measure(own)
        best = max(
            (name for name in steps_per_s if name != "default"),
            key=lambda n: steps_per_s[n]["median"],
        )
        return {
            "sleep_s": self.sleep_s,
            "said": default.fitted,
            "steps_per_s": steps_per_s,
            "best_by_hand": best,
            "default_to_best": steps_per_s["default"]["median"] / steps_per_s[best]["median"],
        }

    def _load(self, *settings: str) -> LoadedConfig:
        fixed = (
            "agent.hidden_sizes=[64,64]",
            f"env.kwargs.sleep_s={self.sleep_s}",
            *NOT_TRAINING,
            "learner.eval_interval=0",
        )
        env = "vedette_rl.testing:Synthetic"
        return load_config(env=env, settings=[*fixed, *settings], environment={}, fit="here")

    def _measure(self, loaded: LoadedConfig) -> dict[str, float]:
        config = loaded.config
        allowed = "--allow-import=vedette_rl"
        with (
            learner_of(config) as (address, asker),
            run_actors(address, config.actors.count, allowed),
        ):
            rates = [measured(asker, _WARM_S, self.seconds).per_s for _ in range(self.rounds)]
            check_actors(ask(asker))
        return summarize_rounds(rates)
