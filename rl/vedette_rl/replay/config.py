"""The configuration of the replay."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from vedette_rl.import_by_name import choice_or_import
from vedette_rl.settings_part import SettingsPart


class ReplayConfig(SettingsPart):
    """The replay's part of a run's configuration."""

    place = "replay"

    capacity: int = Field(default=100_000, ge=1)
    """rows that can be drawn; the oldest make room for the newest."""
    directory: str | None = None
    """where the columns lie; None: ``replay/`` in the run's directory. A tmpfs is quick and is
    lost at a reboot, a disk is large."""
    sync_interval_s: float = Field(default=5.0, ge=0.0, le=3600.0, allow_inf_nan=False)
    """seconds between two syncs of the replay to the disk: what a power failure of the learner's
    host may take; 0: all that it has then."""
    name: Annotated[str, choice_or_import("auto")] = "auto"
    """what draws: ``auto``, uniformly or as `prioritized` says; or ``module:Name`` of your own, a
    `vedette_rl.core.ReplayBuffer` that is made with the rows, a generator and this
    configuration."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """further arguments of your own replay."""
    prioritized: bool = False
    """draw by |TD error| (Schaul et al. 2016, proportional) instead of uniformly."""
    alpha: float = Field(default=0.6, ge=0.0, le=1.0)
    """how much the priority counts: 0 is uniform (their 0.6, proportional variant)."""
    beta_0: float = Field(default=0.4, ge=0.0, le=1.0)
    """exponent of the importance weights at the start (their 0.4)."""
    beta_final: float = Field(default=1.0, ge=0.0, le=1.0)
    """the same from `beta_steps` on (their 1.0)."""
    beta_steps: int = Field(default=500_000, ge=1)
    """samples drawn, as batches, over which beta rises linearly."""
    priority_epsilon: float = Field(default=1e-6, gt=0.0, le=1.0)
    """added to |TD error|, so that every row can be drawn."""
    initial_priorities: Literal["max", "actor"] = "max"
    """what a row that was never drawn counts as: ``max``, the largest priority so far (Schaul et
    al. 2016); ``actor``, the |TD error| that the actor's network gives it (Ape-X, Horgan et al.
    2018, section 3)."""
    frame_storage: Literal["auto", "once", "plain"] = "auto"
    """``auto`` stores and sends once what transitions share, where observations are stacks of uint8
    images or have 4 KiB and more: of stacks each frame, of other observations each whole one, which
    one transition comes to and the next begins with. ``once`` does so for all observations, and
    ``plain`` for none. Samples are the same. A step processor other than ``n_step`` needs
    ``plain``, which ``auto`` then is."""
    samples_per_insert: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    """samples drawn for each sample inserted; None: as the agent has it
    (`AgentConfig.usual_samples_per_insert`), which a run saves; 0 switches the limiter off. Of the
    samples that a step processor makes of one environment step (``her``, or the ``rows_per_step``
    of your own) one counts."""
    error_buffer: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    """how far drawing may run from that ratio, in samples drawn; None: wide enough for what one
    batch on either side needs."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.beta_final < self.beta_0:
            raise ValueError(
                f"beta_final is {self.beta_final:g}, below beta_0 {self.beta_0:g}: raise it"
            )
        if self.kwargs and self.name == "auto":
            raise ValueError("kwargs are for a replay of your own: set replay.name=module:Name")
        if self.initial_priorities == "actor" and not self.prioritized:
            raise ValueError(
                "initial_priorities is 'actor', and nothing is drawn by priority: "
                "set prioritized=true, or initial_priorities=max"
            )
        return self
