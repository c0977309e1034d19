"""The parts of a configuration that belong to what runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, PositiveInt

from vedette_rl.agents.config import EnvSteps
from vedette_rl.import_by_name import choice_or_import, is_import_name
from vedette_rl.settings.part import SettingsPart
from vedette_rl.settings.plain_values import PlacePath
from vedette_rl.settings.stored import IN_BEST, IN_SAMPLES
from vedette_services.config.plugins import OURS

MIB = 1 << 20
DEVICES = r"^(auto|cpu|mps|cuda(:\d{1,3})?)$"
SAVED_MODEL = r"^(best|latest|\d{1,18})$"
KEY_OR_NAME = r"^([0-9a-zA-Z.\-:+=^!/*?#-&<>()\[\]{}@]{40}|[A-Za-z0-9][A-Za-z0-9._\-]{0,63})$"
"""A public key in Z85, or the name of one, as `vedette_services.net.keys.NAME` has it."""
RecorderName = Annotated[str, choice_or_import(*OURS["vedette.recorders"])]


class ActorsConfig(SettingsPart):
    """The actors of every manager."""

    place = "actors"
    synonyms: ClassVar[Mapping[str, str]] = {
        "count": "n_actors num_actors workers num_workers n_workers actor_count "
        "num_env_runners num_rollout_workers actors",
        "envs_per_actor": "n_envs num_envs envs num_envs_per_env_runner num_envs_per_worker "
        "vector_envs",
        "n_buffer": "rollout_fragment_length unroll_length rollout_length buffer send_interval",
        "window_batches": "max_inflight maxinflight max_outstanding queue_size max_queue",
    }

    count: int = Field(default=2, ge=0, le=4096)
    """actor processes that `vedette run` starts; `vedette actors` has its own ``--count``. 0 trains
    offline, on `replay.sources` alone, for as long as there are no `learner.warmup_period` samples
    of actors that are started otherwise."""
    envs_per_actor: int = Field(default=8, ge=1, le=65_536)
    """environments an actor plays with one batched forward."""
    n_buffer: int = Field(default=16, ge=1, le=1_000_000)
    """transitions in a batch (upstream's name). Where it is not set, two steps of an actor's
    environments, at least 16 for all actors together, and up to twelve steps in a large fleet. If
    the environment's configuration stacks frames that are stored once (`replay.frame_storage`), it
    is as many as it takes for the frames at a batch's edges, which are in two batches, to be 8 % of
    its own."""
    step_processor: Annotated[
        str, choice_or_import(*OURS["vedette.step_processors"]), IN_SAMPLES
    ] = "n_step"
    """what makes transitions of steps: ``n_step``, by `agent.n_step`; ``her``, each episode as it
    was and with goals that were reached in it (Andrychowicz et al. 2017), for environments of
    goals; or ``module:Name`` of your own, made as `vedette_rl.steps.n_step.NStep` is."""
    her_goals: int = Field(default=4, ge=1, le=1000)
    """transitions with other goals that ``her`` makes of each (k = 4: Andrychowicz et al. 2017,
    section 4.5)."""
    explore_from: int | None = Field(default=None, ge=0)
    """the version of the model from which exploration counts: epsilon's clock and the uniform
    actions of `agent.uniform_warmup` begin there; None: after `learner.pretrain_opts`. With 0 the
    steps on sources alone use exploration up, and actors act by the pretrained model at once."""
    steps_per_row: int = Field(default=100, ge=1, le=1_000_000)
    """environment steps that a step processor of your own takes for a transition, at most: a batch
    counts no more, and the rest counts with the batches after it."""
    run_length: int = Field(default=0, ge=0, le=65_536)
    """steps that actors play on one model and hand over together, those of each environment one
    behind the other. A queue sets it to `replay.sequence`; 0: as they are played."""
    window_batches: int = Field(default=1024, ge=1, le=1_000_000)
    """batches a manager may have sent without an acknowledgement."""
    window_bytes: int = Field(default=64 * MIB, ge=1)
    """bytes of payload that a manager may have sent without an acknowledgement."""
    on_full: Literal["block", "drop_oldest"] = "block"
    """what a full window does: actors wait, or the oldest unsent batch is dropped and counted; of
    an outbox the oldest file, which may have been sent."""
    window_s: float = Field(default=60.0, gt=0.0, allow_inf_nan=False)
    """seconds after which samples that still wait to be sent are dropped and counted, with
    ``drop_oldest``: the learner is slower than the actors, or is away. An outbox keeps them,
    however old they are, as long as it has room."""
    step_timeout_s: float = Field(default=60.0, gt=0.0, allow_inf_nan=False)
    """seconds after which an actor is restarted whose environments stand still."""
    restart_min_s: float = Field(default=0.5, gt=0.0, allow_inf_nan=False)
    """seconds to wait before an actor is restarted; doubles up to `restart_max_s`."""
    restart_max_s: float = Field(default=30.0, gt=0.0, allow_inf_nan=False)
    """the longest such wait."""

    @property
    def rows_per_step(self) -> float:
        """Transitions that the step processor makes of each step, on average.

        Raises:
            UnknownNameError: there is no such step processor here.
        """
        from vedette_rl.steps.registry import rows_per_step  # not for who only reads settings

        return rows_per_step(self.step_processor, her_goals=self.her_goals)

    def env_steps_max(self, n_step: int) -> int:
        """Return the environment steps that a batch may carry.

        A step of an environment begins a transition, which comes out up to `n_step` steps later.
        """
        per_row = self.steps_per_row if is_import_name(self.step_processor) else 1
        return self.n_buffer * per_row + self.envs_per_actor * (n_step + 1)


def _number_as_text(value: object) -> object:
    """Write a whole number, 5500 or 5.5e3, as the digits of a checkpoint's name."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if type(value) is int else value


class LearnerConfig(SettingsPart):
    """The learner loop, in upstream's names. Intervals are optimization steps; 0 means off."""

    place = "learner"
    pattern_words = {  # noqa: RUF012 - it is not changed
        DEVICES: "auto, cpu, mps, cuda or cuda:N",
        SAVED_MODEL: "latest, best or the optimization steps of a checkpoint",
    }
    synonyms: ClassVar[Mapping[str, str]] = {
        "warmup_period": "learning_starts warmup warm_up warmup_steps min_size start_steps "
        "min_size_to_sample min_replay_size num_steps_sampled_before_learning_starts "
        "min_buffer_size random_steps",
        "sync_interval": "publish_interval sync_freq policy_update_interval update_interval "
        "weight_sync_interval steps_per_update variable_update_period",
        "eval_interval": "eval_freq eval_frequency evaluation_interval eval_every",
        "save_interval": "save_freq checkpoint_interval checkpoint_freq save_every "
        "checkpoint_frequency",
        "keep_checkpoints": "max_checkpoints keep_last save_total_limit checkpoints",
        "recorders": "logger loggers log logging track tensorboard wandb csv",
        "flush_record_interval": "log_interval log_freq log_every",
        "device": "cuda gpu accelerator",
        "precision": "amp mixed_precision use_amp bf16 tf32 autocast",
        "deterministic": "cudnn_deterministic torch_deterministic deterministic_torch",
        "compile": "torch_compile compile_model",
        "captured_step": "cudagraphs cuda_graphs cudagraph capture",
        "copy_replay": "buffer_device replay_device storage_device device_replay",
        "torch_threads": "num_threads threads n_threads",
        "snapshot": "snapshot_dir snapshot_directory backup backup_dir",
    }

    warmup_period: int = Field(default=1000, ge=1)
    """samples of actors in the replay before the first optimization step on them."""
    pretrain_opts: int = Field(default=0, ge=0)
    """optimization steps on `replay.sources` alone, before those that wait for actors; they do not
    count for `replay.samples_per_insert`, and exploration begins after them
    (`actors.explore_from`). Actors may play meanwhile."""
    sync_interval: Annotated[int, EnvSteps("a model every {}", 16, 1, most=50)] = Field(
        default=8, ge=0
    )
    """optimization steps between models sent to actors. A model that is evaluated is sent, too, and
    models of a queue are sent when a block is done. Where it is not set, those of a step of all
    environments of the fleet and of at least 16 environment steps, and never more than 50."""
    eval_interval: Annotated[int, EnvSteps("an evaluation every {}", 5_000, 250)] = Field(
        default=2_500, ge=0
    )
    """optimization steps between evaluations. Where it is not set, those of 5,000 environment
    steps; of 250 for each environment of a larger fleet."""
    save_interval: int = Field(default=10_000, ge=0)
    """optimization steps between checkpoints; one is written at the end in any case, and some
    before the first interval ends: after 256 steps, and each time that their number has doubled. A
    write takes a tenth of a second for a small network; a state that comes meanwhile waits, and a
    newer one takes its place."""
    record_agent_info_interval: int = Field(default=500, ge=0)
    """optimization steps between records of the agent's own scalars (losses)."""
    record_compute_cost_interval: int = Field(default=500, ge=0)
    """optimization steps between records of `average_opt_time` and its like."""
    flush_record_interval: int = Field(default=500, ge=0)
    """optimization steps between flushes of the recorder; in a long run at least 1/5,000 of its
    time apart."""
    keep_checkpoints: int = Field(default=3, ge=1)
    """how many checkpoints are kept; older ones are removed."""
    journal: bool = True
    """write down what each draw saw, in ``journal/``: by it `vedette rerun` executes the learning
    again, bit by bit. About half a byte an optimization step."""
    recorders: tuple[RecorderName, ...] = ("tensorboard",)
    """where curves go: ``tensorboard``, ``csv``, ``jsonl``, ``mlflow`` (the tracking server that
    ``MLFLOW_TRACKING_URI`` names), ``wandb``, and ``module:Name`` of your own, which is made with
    the run's directory."""
    device: str = Field(default="auto", pattern=DEVICES)
    """``auto`` (the GPU where there is one), ``cpu``, ``cuda``, ``cuda:1``, ``mps``."""
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """numbers of the networks while they learn; weights, losses, optimizers and models stay
    float32. ``tf32`` multiplies matrices and convolves in TF32 on an NVIDIA GPU, ``float32`` does
    not (torch by itself convolves so), ``bfloat16`` computes the networks under torch's
    autocast."""
    deterministic: bool = True
    """convolve on an NVIDIA GPU so that the same steps give the same bits, as `vedette rerun` needs
    it. In float32 that takes longer (a step on Atari's pictures 20 to 35 % on an H200), in ``tf32``
    and ``bfloat16`` it does not."""
    model_dtype: Literal["float32", "float16"] = "float32"
    """numbers of the weights in the models that are sent to other processes and hosts: ``float16``
    is half of the bytes; actors compute in float32. Checkpoints, evaluations on the learner and
    exports keep all digits. A client in another language has to know it, and refuses the run
    otherwise."""
    compile: bool = False
    """compile the networks that learn by `torch.compile`, which takes up to a minute at each start
    and needs a C++ compiler (on a GPU, Triton); without one they run as they are."""
    copy_replay: bool = True
    """keep a copy of the replay in an NVIDIA GPU's memory where it has room for it, and gather
    batches there; otherwise they are gathered in the host's and copied, one ahead. With
    `replay.sources` all are copied or none: not beside pictures that actors store once."""
    ranks: int = Field(default=1, ge=1, le=64)
    """processes that train one agent on this host, each on its part of every batch and on a GPU of
    its own where there are GPUs; torchrun starts them. `agent.batch_size` is of all together."""
    captured_step: bool = True
    """on an NVIDIA GPU, each kind of optimization step, and the gathering of a batch in the copy of
    the replay, is captured as a CUDA graph at its fourth time, and from then on replayed. False
    runs operations one after the other: for a network of your own whose Python does not do the same
    at every step."""
    max_managers: int = Field(default=2048, ge=1, le=4096)
    """actor managers at a time; further ones are refused. With keys, each has some of these places
    for itself, up to 64; if half of all are not enough for that, fewer."""
    init_from: PlacePath | None = None
    """another run's directory, whose weights a new run begins with, as far as the shapes of its
    arrays fit; the environment may be another one. Optimizers and counters are new."""
    init_checkpoint: Annotated[
        str,
        BeforeValidator(
            _number_as_text,
            json_schema_input_type=Annotated[str, Field(pattern=SAVED_MODEL)]
            | Annotated[int, Field(ge=0)],
        ),
    ] = Field(default="latest", pattern=SAVED_MODEL)
    """which of that run's models: ``latest``, a checkpoint by its optimization steps, or ``best``,
    the best by evaluation, of which only the network that acts is kept."""
    torch_threads: int = Field(default=1, ge=0, le=1024)
    """threads of torch's own pool in the trainer; 0 leaves it to torch."""
    snapshot: PlacePath | None = None
    """a folder on another disk or a mounted share, to which replay, ledger and checkpoints are
    copied while the run goes on: `vedette learner --from-snapshot` continues from there when this
    host is gone. What managers with an outbox have sent stays in it until it is there."""
    snapshot_interval_s: float = Field(default=30.0, ge=1.0, le=86_400.0, allow_inf_nan=False)
    """seconds between two generations of the snapshot: outboxes hold what is sent meanwhile."""
    snapshot_share: float = Field(default=0.25, gt=0.0, le=1.0)
    """the part of the time that is spent on copying, at most; the first copy of a start and the
    last one of a run take all."""


_FRESH_EPISODES = 500_000
"""Seeds of episodes that confirm an evaluation, from so far behind the evaluations' own on."""


class EvaluationConfig(SettingsPart):
    """Greedy evaluations of the newest model."""

    place = "evaluation"
    pattern_words = {  # noqa: RUF012 - it is not changed
        KEY_OR_NAME: "a key of 40 characters or its name (`vedette keys list DIR` prints them)"
    }
    synonyms: ClassVar[Mapping[str, str]] = {
        "episodes": "n_eval_episodes eval_episodes num_eval_episodes num_episodes",
        "seed": "eval_seed",
        "max_episode_steps": "eval_max_steps max_eval_steps eval_max_episode_steps",
    }

    episodes: Annotated[int, IN_BEST] = Field(default=20, ge=1, le=100_000)
    """episodes of one evaluation."""
    envs: PositiveInt | None = None
    """environments that an evaluation plays side by side, beside those of the actors; they are kept
    from one evaluation to the next. Where it is not set 20, or 8 in processes of their own, and
    never more than `episodes`. 1 where a simulator exists a second time, and no third."""
    seed: Annotated[int, IN_BEST] = Field(default=10_000, ge=0, lt=2**31)
    """seed of the first episode of an evaluation; the next episodes have the next seeds. Every
    evaluation plays the same ones, `vedette eval` others, because the best model was chosen by
    these."""
    max_episode_steps: Annotated[PositiveInt | None, IN_BEST] = None
    """an episode is cut here, and counted as cut; ``none`` is the environment's own limit, or 1,000
    where it names none: a greedy policy may never end one there. It counts the steps of the
    environment as it is wrapped."""
    end_timeout_s: float = Field(default=60.0, ge=0.0, allow_inf_nan=False)
    """seconds that the end of a run waits for the evaluation of its last model; 0 leaves it out."""
    confirm: int = Field(default=5, ge=0, le=100)
    """how many further evaluations of the same model, each of other episodes, confirm one that is
    at `stop.target_return`: the run ends once the mean of these is at the target after each. 0: one
    evaluation ends the run, which is then done, not solved."""
    where: Literal["auto", "learner", "actors"] = "auto"
    """the host that plays: the ``learner``, or the ``actors``: one of their managers at a time is
    asked, and plays in environments of its own. ``auto``: the learner, or the actors if
    `env.observation` and `env.action` are declared."""
    trusted: tuple[Annotated[str, Field(pattern=KEY_OR_NAME)], ...] = ()
    """keys of the managers whose evaluations choose the best model and reach `stop.target_return`:
    names, or the public keys themselves (`vedette keys list` prints both). What others report is
    only shown. Without keys, managers count if the learner listens on this host alone."""
    episode_timeout_s: float = Field(default=300.0, gt=0.0, allow_inf_nan=False)
    """seconds without the end of an episode after which a manager loses an evaluation to another
    one; the learner's own evaluator is started again if a step takes that time (20 s at least)."""

    def fresh_seed(self, number: int) -> int:
        """Return the seed of the first episode of a fresh evaluation: neither its own episodes nor
        those of `vedette eval`, and for each number others.

        Args:
            number: of all fresh evaluations of a start.
        """
        block = number % max(1, _FRESH_EPISODES // self.episodes)
        return (self.seed + _FRESH_EPISODES + block * self.episodes) % 2**31

    def plays(self, seed: int, episodes: int, *, fresh: bool) -> bool:
        """Return True if evaluations play one of these episodes.

        Args:
            seed: of the first episode; the others count on.
            fresh: those that confirm an evaluation count, too.
        """
        played = {self.seed: self.episodes}
        if fresh:
            blocks = max(1, _FRESH_EPISODES // self.episodes)
            played[self.seed + _FRESH_EPISODES] = blocks * self.episodes
        return any(
            (seed - first) % 2**31 < count or (first - seed) % 2**31 < episodes
            for first, count in played.items()
        )

    @property
    def for_managers(self) -> dict[str, int | None]:
        """Return what a manager that plays evaluations needs to know."""
        bound = self.max_episode_steps
        played = {"episodes": self.episodes, "seed": self.seed, "max_episode_steps": bound}
        # Managers of an earlier version do not know it: it travels where it is set.
        return played if self.envs is None else {**played, "envs": self.envs}


class StopConfig(SettingsPart):
    """The conditions that end a run: the first met ends it. 0, or none for the return, is off."""

    place = "stop"
    synonyms: ClassVar[Mapping[str, str]] = {
        "max_env_steps": "steps total_timesteps timesteps total_steps max_steps num_timesteps "
        "num_steps_total max_frames frames max_timesteps",
        "max_opts": "max_updates total_updates max_iterations opt_steps epochs",
        "max_seconds": "max_time time_limit timeout time_total_s",
        "target_return": "target_reward reward_threshold solved_return max_reward",
    }

    max_opts: int = Field(default=0, ge=0)
    """optimization steps, over all epochs of the run."""
    max_env_steps: int = Field(default=0, ge=0)
    """environment steps, over all epochs: those behind the transitions that are in the replay."""
    max_seconds: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """seconds of this epoch."""
    target_return: float | None = Field(default=None, allow_inf_nan=False)
    """reached when a greedy evaluation's mean is at least this, which `evaluation.confirm` more
    confirm."""

    @property
    def never(self) -> bool:
        """Return whether no condition is set."""
        return self == StopConfig()
