"""The configuration keys that agents share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, PositiveInt, model_validator

from vedette_rl.import_by_name import choice_or_import
from vedette_rl.networks.layers import Architecture, CriticArchitecture
from vedette_rl.settings.part import SettingsPart
from vedette_rl.settings.stored import (
    IN_SAMPLES,
    IN_SAMPLES_SUMS,
    IN_WEIGHTS,
    Fraction,
    ScheduleConfig,
)

PositiveFraction = Annotated[float, Field(gt=0.0, le=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0, le=1e9)]
NonNegativeFloat = Annotated[float, Field(ge=0.0, le=1e9)]
LearningRate = Annotated[float, Field(gt=0.0, le=1e3)]
Width = Annotated[int, Field(ge=1, le=16_384)]  # two such layers: 1.1 GB of weights
Quantiles = Annotated[int, Field(ge=1, le=10_000)]
CriticSizes = Annotated[tuple[Width, ...], Field(max_length=64)]
HiddenSizes = Annotated[CriticSizes, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class EnvSteps:
    """Marks a count of optimization steps that the size of the fleet decides where nobody set it.

    ::

        class MyConfig(AgentConfig):
            reset_interval: Annotated[PositiveInt, EnvSteps("a reset every {}", 20_000)] = 10_000

    Args:
        what: a sentence with ``{}`` in place of the environment steps.
        least: environment steps that it stands for in a small fleet.
        per_env: environment steps for each environment of the fleet, where that is more.
        most: optimization steps that it never exceeds; 0: no bound.
    """

    what: str
    least: int
    per_env: float = 0.0
    most: int = 0

    def env_steps(self, environments: int) -> float:
        """The environment steps that it stands for in a fleet of this size."""
        return max(self.least, self.per_env * environments)

    def opt_steps(self, environments: int, env_steps_per_opt: float) -> int:
        """The same in optimization steps, at least 1."""
        found = max(1, round(self.env_steps(environments) / env_steps_per_opt))
        return min(found, self.most) if self.most else found


class ImitationConfig(SettingsPart):
    """Behaviour cloning beside an agent's own loss, of the actions in `replay.sources`."""

    model_config = ConfigDict(allow_inf_nan=False)
    place = "agent.imitation"

    loss: Literal["none", "cross_entropy", "margin"] = "none"
    """``cross_entropy``: -log pi(a | s) of the policy, or of exp(q) / sum exp(q); ``margin``: how
    far the action is from being the best by `margin` (DQfD, Hester et al. 2018, section 4), of
    agents on action values."""
    weight: NonNegativeFloat = 1.0
    """what the loss of imitation is multiplied by: its mean over the batch, where samples of actors
    are 0 (1: DQfD)."""
    margin: PositiveFloat = 0.8
    """of the loss `margin`: how much lower the values of other actions should be (0.8: DQfD)."""
    schedule: ScheduleConfig = ScheduleConfig()
    """how the weight changes over the run."""


class MunchausenConfig(SettingsPart):
    """Adds the log-probability of the action to the reward, and the policy's entropy to the target,
    of agents on action values (Vieillard et al. 2020, arXiv:2007.14430)."""

    model_config = ConfigDict(allow_inf_nan=False)
    place = "agent.munchausen"

    alpha: Fraction = 0.0
    """factor of the log-probability that is added to the reward (0.9: the paper's); 0 is off, also
    for the entropy."""
    temperature: PositiveFloat = 0.03
    """tau of the policy softmax(q / tau), in the unit of the reward (0.03: the paper's)."""
    lowest: Annotated[float, Field(ge=-1e9, le=0.0)] = -1.0
    """l0: tau log pi(a | s) counts as at least this (-1: the paper's)."""


class AgentConfig(SettingsPart):
    """An agent's hyperparameters. Each agent's own class adds those of its paper."""

    model_config = ConfigDict(allow_inf_nan=False)
    place = "agent"

    env_steps_per_opt: ClassVar[float] = 4.0
    """environment steps to an optimization step where a run sets no `replay.samples_per_insert` (4:
    Mnih et al. 2015, table 1, update frequency). An agent's own class has its paper's."""

    name: Annotated[str, IN_WEIGHTS]
    """the registry's name of the agent, or ``module:Name``."""
    batch_size: PositiveInt = 32
    """samples an optimization step draws (32: Mnih et al. 2015, table 1)."""
    discount: Annotated[Fraction, IN_SAMPLES_SUMS] = 0.99
    """gamma, per environment step (0.99: Mnih et al. 2015, table 1)."""
    n_step: Annotated[int, Field(ge=1, le=255), IN_SAMPLES] = 1
    """steps a transition spans before it bootstraps (1: one-step TD; 3 in Ape-X and Rainbow). The
    step processor sums the rewards; the agent discounts by the transition's own ``n_steps``."""
    learning_rate: LearningRate = 1e-4
    """Adam's step size."""
    schedule: ScheduleConfig = ScheduleConfig()
    """how all learning rates change over the run."""

    @classmethod
    def fitting_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Defaults that follow other keys, those of `given`, in the place of the fields' own."""
        return {}

    @model_validator(mode="after")
    def _fit_defaults(self) -> Self:
        for name, value in self.fitting_defaults(dict(self)).items():
            if name not in self.model_fields_set:
                self.__dict__[name] = value  # the class is frozen
        return self

    @property
    def usual_samples_per_insert(self) -> float:
        """Samples drawn for each inserted, as in the agent's paper."""
        return self.batch_size / self.env_steps_per_opt


class NetworkConfig(AgentConfig):
    """The network between an observation and an agent's outputs."""

    custom_network_is_whole: ClassVar[bool] = False
    lone_image_is_normalized: ClassVar[bool] = False
    """True: an image that is the whole observation has features of `image_features` too."""

    network: Annotated[str, choice_or_import("auto", "mlp", "cnn"), IN_WEIGHTS] = "auto"
    """``auto`` takes uint8 images through convolutions, and everything else flattened: of a
    dictionary with images, each image and the rest become features, which are concatenated.
    ``cnn`` is the same and refuses an observation without images; ``mlp`` flattens images too.
    Frames and colours of a stack of images are the image's channels. ``module:Name`` is an
    `nn.Module` of your own: for DQN the whole Q-network, for IQN and SAC the encoder in front of
    the agent's own layers (`vedette_rl.networks.encoder`)."""
    hidden_sizes: Annotated[HiddenSizes, IN_WEIGHTS] = (256, 256)
    """fully connected ReLU layers behind a flattened observation, or behind the features of images
    and vectors."""
    cnn_hidden_sizes: Annotated[HiddenSizes, IN_WEIGHTS] = (512,)
    """fully connected ReLU layers behind the convolutions of an image that is the whole observation
    (512: Mnih et al. 2015, methods); for agents of continuous actions it is `hidden_sizes`."""
    convolutions: Annotated[Literal["auto", "nature", "drq", "small"], IN_WEIGHTS] = "auto"
    """of each image: ``nature`` has 3 layers (Mnih et al. 2015), ``drq`` 4 of 3x3 (DrQ-v2,
    arXiv:2107.09645), ``small`` 2 of 3x3; ``auto`` is ``nature`` from 36 pixels a side on, and
    ``small`` for smaller ones with channels."""
    image_features: Annotated[Width, IN_WEIGHTS] = 256
    """features of each image of several parts: ``tanh(norm(linear(convolutions)))`` (256: SERL,
    arXiv:2401.16013, the authors' code; 50 in DrQ-v2)."""
    vector_features: Annotated[Width, IN_WEIGHTS] = 64
    """features of everything beside the images, ``tanh(norm(linear(vector)))`` (64: SERL)."""
    shared_cnn: Annotated[bool, IN_WEIGHTS] = False
    """all images go through the same weights; they must have one shape."""
    random_shift: Annotated[int, Field(ge=0)] | Literal["auto"] = 0
    """shift each image of a batch at random by up to this many pixels, of ``obs`` and of
    ``next_obs``; 0 is off; ``auto`` is a 21st of the image's shorter side (4 pixels of 84: DrQ-v2,
    arXiv:2107.09645)."""
    normalize_observations: Annotated[bool, IN_WEIGHTS] = False
    """scale each number of the observation by the running mean and deviation of the batches that
    are learned from, clipped to +-10; pixels, categories and bits stay as they are. The statistics
    travel, are saved and are exported with the weights."""


class ActorCriticConfig(NetworkConfig):
    """The keys of agents with a policy and critics; they act in a Box."""

    env_steps_per_opt: ClassVar[float] = 1.0
    lone_image_is_normalized: ClassVar[bool] = True

    batch_size: PositiveInt = 256
    """samples an optimization step draws (256)."""
    learning_rate: LearningRate = 3e-4
    """of Adam, for the policy and the critics (3e-4)."""
    adam_eps: PositiveFloat = 1e-8
    """Adam's epsilon (1e-8: Adam's own)."""
    weight_decay: NonNegativeFloat = 0.0
    """of AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101); 0 is Adam."""
    hidden_sizes: HiddenSizes = (256, 256)
    """of the policy (256, 256)."""
    random_shift: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """of images, in pixels; ``auto`` is a 21st of the shorter side (4 of 84: DrQ-v2,
    arXiv:2107.09645)."""
    shared_encoder: Annotated[bool, IN_WEIGHTS] = True
    """of images: the policy takes the critics' encoder, which the critics' loss alone trains
    (SAC-AE, arXiv:1910.01741; DrQ-v2). False: it learns its own."""
    policy_architecture: Annotated[Architecture, IN_WEIGHTS] = "mlp"
    """of the policy: ``mlp``, or as `critic_architecture`."""
    critic_hidden_sizes: Annotated[CriticSizes, IN_WEIGHTS] = ()
    """of each critic; none: as the policy's."""
    critic_architecture: Annotated[CriticArchitecture, IN_WEIGHTS] = "mlp"
    """of each critic: ``mlp``; ``layer_norm`` normalises hidden layers before their ReLU (DroQ,
    arXiv:2110.02034, without its dropout); ``residual`` has a normalised residual block for each
    hidden size, which must be equal (SimBa, arXiv:2410.09754); ``batch_norm`` normalises each
    layer's input over the batch and does without target critics (CrossQ, arXiv:1902.05605)."""
    n_critics: Annotated[int, Field(ge=1, le=1_000), IN_WEIGHTS] = 2
    """Q-functions, of which the smallest counts (2: TD3, arXiv:1802.09477)."""
    critics_in_target: Annotated[int, Field(ge=0)] = 0
    """of these, how many are drawn at random for each target, whose smallest counts; the policy
    then follows the mean of all (2 of 10: REDQ, arXiv:2101.05982). 0: all, without a draw."""
    n_quantiles: Annotated[Quantiles, IN_WEIGHTS] = 1
    """quantiles of the return that each critic learns by the quantile Huber loss; 1 learns its mean
    (25: TQC, arXiv:2005.04269)."""
    dropped_quantiles: Annotated[int, Field(ge=0)] = 0
    """of these, how many of each critic the target leaves out, the largest of all critics' (2 of
    25: TQC)."""
    loss: Literal["mse", "huber"] = "mse"
    """of the critics where they learn means; ``mse`` is without the factor 1/2, which Adam does not
    see (`max_grad_norm` does); ``huber`` is border's SmoothL1."""
    policy_delay: PositiveInt = 1
    """optimization steps of the critics to one of the policy (2: TD3; 3: CrossQ,
    arXiv:1902.05605)."""
    tau: PositiveFraction = 0.005
    """how far an update moves the target networks (5e-3)."""
    target_update_interval: PositiveInt = 1
    """optimization steps between two of these updates (1)."""
    max_grad_norm: NonNegativeFloat = 0.0
    """clip the norm of each gradient to this; 0 is off (the paper's)."""
    uniform_warmup: bool = True
    """act uniformly at random on an untrained model (version 0), as the authors' code does for its
    first steps; a run that begins with another's weights (`learner.init_from`) does not, unless
    this is set."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.critics_in_target > self.n_critics:
            raise ValueError(
                f"critics_in_target {self.critics_in_target} is more than n_critics "
                f"{self.n_critics}: set agent.n_critics={self.critics_in_target}, or lower it"
            )
        if self.dropped_quantiles >= self.n_quantiles:
            raise ValueError(
                f"dropped_quantiles {self.dropped_quantiles} must be below n_quantiles "
                f"{self.n_quantiles}: raise agent.n_quantiles (TQC has 25), or lower it"
            )
        for sizes, kind in (
            (self.hidden_sizes, self.policy_architecture),
            (self.critic_hidden_sizes or self.hidden_sizes, self.critic_architecture),
        ):
            if kind == "residual" and len(set(sizes)) > 1:
                raise ValueError(f"residual blocks need equal hidden sizes, not {list(sizes)}")
        return self
