"""The configuration keys that agents share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from vedette_rl.import_by_name import choice_or_import
from vedette_rl.stored_settings import IN_SAMPLES, IN_SAMPLES_SUMS, IN_WEIGHTS

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
PositiveFraction = Annotated[float, Field(gt=0.0, le=1.0)]
NonNegativeFloat = Annotated[float, Field(ge=0.0)]
HiddenSizes = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


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


class AgentConfig(BaseModel):
    """An agent's hyperparameters. Each agent's own class adds those of its paper."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

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
    learning_rate: PositiveFloat = 1e-4
    """Adam's step size."""

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
    image_features: Annotated[PositiveInt, IN_WEIGHTS] = 256
    """features of each image of several parts: ``tanh(norm(linear(convolutions)))`` (256: SERL,
    arXiv:2401.16013, the authors' code; 50 in DrQ-v2)."""
    vector_features: Annotated[PositiveInt, IN_WEIGHTS] = 64
    """features of everything beside the images, ``tanh(norm(linear(vector)))`` (64: SERL)."""
    shared_cnn: Annotated[bool, IN_WEIGHTS] = False
    """all images go through the same weights; they must have one shape."""
    random_shift: Annotated[int, Field(ge=0, le=255)] = 0
    """shift each image of a batch at random by up to this many pixels, of ``obs`` and of
    ``next_obs``; 0 is off (4 in DrQ-v2, arXiv:2107.09645, on 84x84)."""
