"""The configuration of the replay."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from vedette_rl.import_by_name import choice_or_import
from vedette_rl.settings.part import SettingsPart
from vedette_rl.settings.plain_values import Kwargs, PlacePath
from vedette_rl.settings.stored import IN_SAMPLES, IN_SAMPLES_IF_ANY, ScheduleConfig

ACTORS = "actors"
"""The source of the rows that actors insert."""

INTERVENTIONS = "interventions"
"""The source of those of their rows in which a person acted."""

SOURCES_MAX = 16

SEQUENCE_MAX = 65_536
"""Steps of a sequence, and of its burn-in."""


class SourceConfig(SettingsPart):
    """A source of samples beside the actors."""

    place = "replay.sources"
    synonyms: ClassVar[Mapping[str, str]] = {
        "data": "path file dataset data_set dataset_id dataset_path offline_data uri",
        "share": "ratio fraction weight sample_ratio",
    }

    data: PlacePath = ""
    """what is read once, before the run starts: ``minari:ID``, the folder of a Minari data set or
    of a LeRobotDataset, the ``.npz`` or HDF5 file of an exported replay or of D4RL, robomimic's
    HDF5, or another run's directory. Empty only for the source ``interventions``, which gets the
    actors' own rows in which a person acted."""
    rename: dict[str, str] = Field(default_factory=dict)
    """our names of its columns, by its own: ``{ "observation.images.front" = "obs/front" }``. Of a
    part of the observations KEY is enough for ``obs/KEY``."""
    share: float = Field(default=0.5, ge=0.0, le=1.0)
    """the part of every batch that is drawn from it (0.5: RLPD, Ball et al. 2023). The rest is
    drawn from the actors' rows; the share of a source without rows goes to the others."""
    schedule: ScheduleConfig = ScheduleConfig()
    """how the share changes over the run."""
    capacity: int = Field(default=100_000, ge=1)
    """rows that ``interventions`` keeps. A data set is kept whole."""


class ReplayConfig(SettingsPart):
    """The replay's part of a run's configuration."""

    place = "replay"
    synonyms: ClassVar[Mapping[str, str]] = {
        "capacity": "buffer_size replay_size replay_buffer_size memory_size replay_capacity "
        "buffer_capacity max_size size",
        "directory": "replay_dir buffer_dir",
        "prioritized": "per use_per prioritized_replay priority prioritised",
        "alpha": "per_alpha prioritized_replay_alpha priority_exponent",
        "beta_0": "per_beta beta prioritized_replay_beta importance_sampling_exponent",
        "samples_per_insert": "replay_ratio utd utd_ratio train_freq train_frequency "
        "gradient_steps training_intensity update_per_step spi",
        "sequence": "sequence_length seq_len seq_length max_seq_len trace_length "
        "replay_sequence_length time_sequence_length batch_length",
        "kind": "mode replay_type buffer_type",
        "block": "rollout_size rollout_batch_size rollouts_size",
        "passes": "n_epochs num_epochs update_epochs num_sgd_iter noptepochs ppo_epochs",
        "max_lag": "max_policy_lag max_staleness max_off_policy_steps",
        "burn_in": "burnin burn_in_length burnin_length replay_burn_in burn_in_steps",
    }

    capacity: int = Field(default=100_000, ge=1)
    """rows that can be drawn; the oldest make room for the newest."""
    keep: int = Field(default=0, ge=0)
    """rows that stay before those that can be drawn, beside the quarter of its guard that any
    replay keeps: further back is what `vedette rerun` can execute again. For one interval of
    checkpoints it takes `learner.save_interval` times `agent.batch_size` divided by
    `replay.samples_per_insert`. A replay has what it was made with."""
    directory: PlacePath | None = None
    """where the columns lie; None: ``replay/`` in the run's directory. A tmpfs is quick and is
    lost at a reboot, a disk is large."""
    sync_interval_s: float = Field(default=5.0, ge=0.0, le=3600.0, allow_inf_nan=False)
    """seconds between two syncs of the replay to the disk: what a power failure of the learner's
    host may take; 0: all that it has then."""
    name: Annotated[str, choice_or_import("auto")] = "auto"
    """what draws: ``auto``, uniformly or as `prioritized` says; or ``module:Name`` of your own, a
    `vedette_rl.core.ReplayBuffer` that is made with the rows, a generator and this
    configuration."""
    kwargs: Kwargs = Field(default_factory=dict)
    """further arguments of your own replay."""
    kind: Annotated[Literal["random", "queue"], IN_SAMPLES] = "random"
    """``random`` draws samples again and again; ``queue`` draws each `passes` times, in the order
    in which they came, in blocks of runs, for agents that learn from those (``appo``)."""
    block: int = Field(default=0, ge=0, le=1 << 24)
    """samples of a block of a queue: its minibatches (`agent.batch_size`) are drawn from these. It
    is a multiple of that and of `sequence`; with ``appo`` 2,048, or a run of each environment of
    the fleet if that is more."""
    passes: int = Field(default=1, ge=1, le=1_000)
    """how often each sample of a queue is drawn; with ``appo`` 4."""
    ahead: int = Field(default=0, ge=0)
    """samples that may wait in a queue beyond the next block; with 0 actors wait once that is
    whole."""
    max_lag: int = Field(default=0, ge=0)
    """samples of a queue whose model is more than so many optimization steps away from the one that
    would learn from them are passed over and counted; 0: none is."""
    strict: bool = False
    """all samples of a block are of the one model that it begins with, as PPO has it (Schulman et
    al. 2017): actors play a run on each model, or as many as a block needs, and then wait for the
    next. What was played on another model is passed over and counted."""
    prioritized: bool = False
    """draw by |TD error| (Schaul et al. 2016, proportional) instead of uniformly."""
    alpha: float = Field(default=0.6, ge=0.0, le=1.0)
    """how much the priority counts: 0 is uniform (their 0.6, proportional variant)."""
    beta_0: float = Field(default=0.4, ge=0.0, le=1.0)
    """exponent of the importance weights at the start (their 0.4)."""
    beta_final: float = Field(default=1.0, ge=0.0, le=1.0)
    """exponent of the importance weights from `beta_steps` on (their 1.0)."""
    beta_steps: int = Field(default=500_000, ge=1)
    """samples drawn, as batches, over which beta rises linearly."""
    priority_epsilon: float = Field(default=1e-6, gt=0.0, le=1.0)
    """added to |TD error|, so that every row can be drawn."""
    initial_priorities: Literal["max", "actor"] = "max"
    """what a row that was never drawn counts as: ``max``, the largest priority so far (Schaul et
    al. 2016); ``actor``, the |TD error| that the actor's network gives it (Ape-X, Horgan et al.
    2018, section 3)."""
    sequence: Annotated[int, Field(ge=0, le=SEQUENCE_MAX), IN_SAMPLES_IF_ANY] = 0
    """environment steps of the sequences that are drawn in place of single samples, for agents that
    learn from sequences; 0: single samples are drawn. Sequences begin at any step, end where their
    episode does, and go across no step that is lost. Each step is stored and sent once, however
    many sequences have it. Samples are then single steps whatever `agent.n_step` is, and a sequence
    counts as so many samples. With `agent.memory` 40 where it is not set. Of a queue the steps of a
    run, in which episodes may end; with ``appo`` 64."""
    burn_in: int = Field(default=0, ge=0, le=SEQUENCE_MAX)
    """environment steps before those of a sequence, from which nothing is learned: they bring a
    recurrent state up to date (R2D2, Kapturowski et al. 2019: 40 before 80). Fewer where the
    episode began later, or steps are gone. With `agent.memory` 20 where it is not set."""
    frame_storage: Literal["auto", "once", "plain"] = "auto"
    """``auto`` stores and sends once what transitions share, where observations are stacks of uint8
    images or have 4 KiB and more: of stacks each frame, of other observations each whole one, which
    one transition comes to and the next begins with. ``once`` does so for all observations, and
    ``plain`` for none. Samples are the same. A step processor other than ``n_step`` needs
    ``plain``, which ``auto`` then is."""
    samples_per_insert: float | None = Field(default=None, ge=0.0, le=1e9, allow_inf_nan=False)
    """samples drawn for each sample that actors insert; None: as the agent has it
    (`AgentConfig.usual_samples_per_insert`), which a run saves; 0 switches the limiter off. Of the
    samples that a step processor makes of one environment step (``her``, or the ``rows_per_step``
    of your own) one counts. Samples drawn from all `sources` count, but for those of optimization
    steps on the named sources alone; rows of data sets are inserted by no actor and do not. A
    sequence is `sequence` samples. So it is the samples of a batch times the optimization steps per
    environment step (RLPD's UTD), whatever the shares are."""
    sources: dict[str, SourceConfig] = Field(default_factory=dict)
    """where samples come from besides the actors: ``[replay.sources.demos]``. Each has a ring of
    its own below the replay's directory."""
    error_buffer: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    """how far drawing may run from that ratio, in samples drawn; None: wide enough for what one
    batch on either side needs."""

    @field_validator("samples_per_insert")
    @classmethod
    def _draws_something(cls, ratio: float | None) -> float | None:
        if ratio is not None and 0.0 < ratio < 1e-12:
            raise ValueError(f"must be 0, which is no limit, or at least 1e-12, not {ratio!r}")
        return ratio

    @field_validator("sources")
    @classmethod
    def _can_be_drawn_together(cls, sources: dict[str, SourceConfig]) -> dict[str, SourceConfig]:
        if len(sources) > SOURCES_MAX:
            raise ValueError(f"{len(sources)} sources: at most {SOURCES_MAX}")
        for name, source in sources.items():
            if not (name.isascii() and name.isidentifier()) or len(name) > 40:
                raise ValueError(f"{name!r}: a source's name is letters, digits and _, up to 40")
            if name == ACTORS:
                raise ValueError(f"{ACTORS!r} are the actors' own rows: name it otherwise")
            if (name == INTERVENTIONS) == bool(source.data):
                why = "are the actors' own rows: leave data out, or name the source otherwise"
                missing = "has no data: name a data set, such as data = 'demos.npz'"
                raise ValueError(f"{name!r} {why if source.data else missing}")
            if source.rename and not source.data:
                raise ValueError(f"{name!r} has a rename and no data: leave rename out")
        if (total := sum(source.share for source in sources.values())) > 1.0:
            raise ValueError(f"the shares of all sources are {total:g}: lower them to 1 or less")
        return sources

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.beta_final < self.beta_0:
            raise ValueError(
                f"beta_final is {self.beta_final:g}, below beta_0 {self.beta_0:g}: raise it"
            )
        if self.kwargs and self.name == "auto":
            raise ValueError("kwargs are for a replay of your own: set replay.name=module:Name")
        if self.sources and self.name != "auto":
            raise ValueError(
                "sources are drawn from by the replay's own classes, and name is one of your own: "
                "set name=auto, or leave sources out"
            )
        if self.initial_priorities == "actor" and not self.prioritized:
            raise ValueError(
                "initial_priorities is 'actor', and nothing is drawn by priority: "
                "set prioritized=true, or initial_priorities=max"
            )
        if self.sequence:
            self.check_sequences()
        return self

    @property
    def is_queue(self) -> bool:
        """True where each sample is drawn a fixed number of times."""
        return self.kind == "queue"

    def check_sequences(self) -> None:
        """Refuse settings with which no sequences can be drawn.

        Raises:
            ValueError: names them.
        """
        rows = self.burn_in + self.sequence
        if self.capacity < rows:
            raise ValueError(
                f"capacity is {self.capacity:,}, and sequences have up to {rows:,} steps (sequence "
                f"and burn_in): set capacity={rows} or more, or lower them"
            )
        if self.initial_priorities == "actor":
            raise ValueError(
                "initial_priorities is 'actor', and actors know no priorities of sequences: "
                "set initial_priorities=max, or sequence=0"
            )
        if self.name != "auto":
            raise ValueError(
                "sequences are drawn by the replay's own classes, and name is one of your own: "
                "set name=auto, or sequence=0"
            )
