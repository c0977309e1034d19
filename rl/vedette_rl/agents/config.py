"""The configuration keys that several agents share: of imitation, of Munchausen's target, and of a
policy with critics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, PositiveInt, model_validator

from vedette_rl.core.agent_config import (
    LearningRate,
    NonNegativeFloat,
    PositiveFloat,
    PositiveFraction,
)
from vedette_rl.networks.config import DrawnMemoryConfig, HiddenSizes, Widths
from vedette_rl.networks.layers import BATCH_NORMS, Architecture, CriticArchitecture
from vedette_rl.settings.for_peers import LEARNER_ONLY
from vedette_rl.settings.later_keys import LATER_KEY
from vedette_rl.settings.part import SettingsPart
from vedette_rl.settings.stored import (
    IN_WEIGHTS,
    Fraction,
    ScheduleConfig,
)

Quantiles = Annotated[int, Field(ge=1, le=10_000)]
NOISE_STEPS_MOST = 10_000
"""Steps of a sequence of noise: 16 environments with 10 dimensions keep 6 MB of it."""
NoiseSteps = Annotated[int, Field(ge=1, le=NOISE_STEPS_MOST)]
NoiseColor = Literal["white", "pink", "red"] | Annotated[float, Field(ge=0.0, le=2.0)]


@dataclass(frozen=True, slots=True)
class EnvSteps:
    """Marks a count of optimization steps that the size of the fleet decides unless it is set.

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
        opts = max(1, round(self.env_steps(environments) / env_steps_per_opt))
        return min(opts, self.most) if self.most else opts


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
    """for the loss `margin`: how much lower the values of other actions should be (0.8: DQfD)."""
    schedule: ScheduleConfig = ScheduleConfig()
    """how the weight changes over the run."""


class MunchausenConfig(SettingsPart):
    """Adds the log-probability of the action to the reward, and the policy's entropy to the target,
    of agents on action values (Vieillard et al. 2020, arXiv:2007.14430)."""

    model_config = ConfigDict(allow_inf_nan=False)
    place = "agent.munchausen"
    synonyms: ClassVar[Mapping[str, str]] = {
        "alpha": "munchausen m_dqn mdqn munchausen_alpha",
        "temperature": "entropy_temperature tau_munchausen",
    }

    alpha: Fraction = 0.0
    """factor of the log-probability that is added to the reward (0.9: the paper's); 0 is off, also
    for the entropy."""
    temperature: PositiveFloat = 0.03
    """tau of the policy softmax(q / tau), in the unit of the reward (0.03: the paper's)."""
    lowest: Annotated[float, Field(ge=-1e9, le=0.0)] = -1.0
    """l0: tau log pi(a | s) counts as at least this (-1: the paper's)."""


class ValueTargetConfig(DrawnMemoryConfig):
    """The keys that change the target of agents on action values."""

    synonyms: ClassVar[Mapping[str, str]] = {
        "value_rescaling": "rescale_values value_function_rescaling transformed_values "
        "use_h_function value_transform",
    }

    munchausen: Annotated[MunchausenConfig, LEARNER_ONLY] = MunchausenConfig()
    """the target of Munchausen DQN and IQN, which chooses no action: `double` is then without
    effect."""
    value_rescaling: Annotated[bool, IN_WEIGHTS, LATER_KEY] = False
    """learn h(q) in the place of q, sign(q) (sqrt(abs(q) + 1) - 1) + q / 1,000, so that returns of
    all sizes can be learned alike (R2D2, Kapturowski et al. 2019). Losses, errors and the recorded
    values are of h(q). DQN acts on these, by which the same action is best; IQN learns samples of
    returns so, and acts on the mean of the returns themselves."""

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if self.value_rescaling and self.munchausen.alpha:
            raise ValueError(
                "value_rescaling is true, and the log-probabilities of Munchausen's target are of "
                "values as they are: set value_rescaling=false, or munchausen.alpha=0"
            )
        return self


class ActorCriticConfig(DrawnMemoryConfig):
    """The keys of agents with a policy and critics; they act in a Box."""

    synonyms: ClassVar[Mapping[str, str]] = {
        "critics_in_target": "num_min_qs target_critics in_target_minimization",
        "dropped_quantiles": "top_quantiles_to_drop_per_net drop",
        "policy_delay": "policy_frequency actor_update_interval policy_freq delayed_update",
        "noise_color": "noise_colour colored_noise coloured_noise pink_noise action_noise_color "
        "color_beta noise_beta noise_exponent noise_type",
        "noise_steps": "noise_seq_len noise_length noise_period",
    }
    env_steps_per_opt: ClassVar[float] = 1.0
    lone_image_is_normalized: ClassVar[bool] = True

    batch_size: PositiveInt = 256
    """samples an optimization step draws (256)."""
    learning_rate: LearningRate = 3e-4
    """Adam's learning rate, for the policy and the critics (3e-4)."""
    adam_eps: Annotated[PositiveFloat, LEARNER_ONLY] = 1e-8
    """Adam's epsilon (1e-8: Adam's own)."""
    adam_beta1: Annotated[float, Field(ge=0.0, lt=1.0), LEARNER_ONLY, LATER_KEY] = 0.9
    """Adam's decay of the first moment, for the policy and the critics (0.9: Adam's own; 0.5:
    CrossQ)."""
    weight_decay: Annotated[NonNegativeFloat, LEARNER_ONLY] = 0.0
    """AdamW's weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101); 0 is Adam."""
    hidden_sizes: HiddenSizes = (256, 256)
    """hidden layers of the policy (256, 256)."""
    random_shift: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """pixels by which images are shifted at random; ``auto`` is a 21st of the shorter side (4 of
    84: DrQ-v2, arXiv:2107.09645)."""
    shared_encoder: Annotated[bool, IN_WEIGHTS] = True
    """with images: the policy takes the critics' encoder, which the critics' loss alone trains
    (SAC-AE, arXiv:1910.01741; DrQ-v2); with memory, every encoder and the core. False: it learns
    its own."""
    policy_architecture: Annotated[Architecture, IN_WEIGHTS] = "mlp"
    """the policy's network: ``mlp``, or as `critic_architecture`."""
    weight_init: Annotated[Literal["torch", "lecun_normal"], LEARNER_ONLY, LATER_KEY] = "torch"
    """initial values of the policy's and the critics' linear layers behind the encoder: ``torch``
    has its own, uniform ones; ``lecun_normal`` normal ones of three times their variance and biases
    of 0 (flax's, so CrossQ's)."""
    critic_hidden_sizes: Annotated[Widths, IN_WEIGHTS, LEARNER_ONLY] = ()
    """hidden layers of each critic; none: as the policy's."""
    critic_architecture: Annotated[CriticArchitecture, IN_WEIGHTS, LEARNER_ONLY] = "mlp"
    """each critic's network: ``mlp``; ``layer_norm`` normalises hidden layers before their ReLU
    (DroQ, arXiv:2110.02034, without its dropout); ``residual`` has a normalised residual block for
    each hidden size, which must be equal (SimBa, arXiv:2410.09754); ``batch_norm`` normalises each
    layer's input over the batch and does without target critics (CrossQ, arXiv:1902.05605);
    ``batch_renorm`` is the same, and after 100,000 batches renormalises (Ioffe 2017,
    arXiv:1702.03275), as CrossQ's code does."""
    n_critics: Annotated[int, Field(ge=1, le=1_000), IN_WEIGHTS, LEARNER_ONLY] = 2
    """Q-functions, of which the smallest counts (2: TD3, arXiv:1802.09477)."""
    critics_in_target: Annotated[int, Field(ge=0), LEARNER_ONLY] = 0
    """how many of them are drawn at random for each target, whose smallest counts; the policy
    then follows the mean of all (2 of 10: REDQ, arXiv:2101.05982). 0: all, without a draw."""
    n_quantiles: Annotated[Quantiles, IN_WEIGHTS, LEARNER_ONLY] = 1
    """quantiles of the return that each critic learns by the quantile Huber loss; 1 learns its mean
    (25: TQC, arXiv:2005.04269)."""
    dropped_quantiles: Annotated[int, Field(ge=0), LEARNER_ONLY] = 0
    """how many of each critic the target leaves out, the largest of all critics' (2 of
    25: TQC)."""
    loss: Annotated[Literal["huber", "mse"], LEARNER_ONLY] = "mse"
    """the critics' loss where they learn means; ``mse`` is without the factor 1/2, which Adam does
    not see (`max_grad_norm` does); ``huber`` is border's SmoothL1."""
    policy_delay: Annotated[PositiveInt, LEARNER_ONLY] = 1
    """optimization steps of the critics to one of the policy (2: TD3; 3: CrossQ,
    arXiv:1902.05605)."""
    tau: Annotated[PositiveFraction, LEARNER_ONLY] = 0.005
    """how far an update moves the target networks (5e-3)."""
    target_update_interval: Annotated[PositiveInt, LEARNER_ONLY] = 1
    """optimization steps between two of these updates (1)."""
    max_grad_norm: Annotated[NonNegativeFloat, LEARNER_ONLY] = 0.0
    """clip the norm of each gradient to this; 0 is off (the paper's)."""
    uniform_warmup: bool = True
    """act uniformly at random on an untrained model (version 0), as the authors' code does for its
    first steps; a run that begins with another's weights (`learner.init_from`) does not, unless
    this is set."""
    noise_color: Annotated[NoiseColor, LATER_KEY] = "white"
    """how the noise by which actors explore is correlated over time: ``white``, not at all;
    ``pink``, as in Eberhard et al. 2023 ("Pink Noise Is All You Need", ICLR); ``red``, more; or the
    exponent itself, from 0 (white) over 1 (pink) to 2 (red). Each number is as large as without,
    and each environment and action dimension has a sequence of its own, a new one for each
    episode."""
    noise_steps: Annotated[NoiseSteps | None, LATER_KEY] = None
    """steps of a sequence of noise that is not white; an episode that is longer goes on with
    another. None: the environment's time limit, at most 10,000, which a run saves; 1,000 where it
    has none."""

    @property
    def has_targets(self) -> bool:
        """True if there are target critics: normalization over a batch does without."""
        return self.critic_architecture not in BATCH_NORMS

    @model_validator(mode="after")
    def _can_remember(self) -> Self:
        # the running statistics of its critics would be of rows that resemble one another
        self.refuse_beside_memory({"critic_architecture=mlp": not self.has_targets})
        return self

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
