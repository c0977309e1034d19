"""The configuration of the network between an observation and an agent's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from vedette_rl.core.agent_config import AgentConfig, UsualSequence
from vedette_rl.import_by_name import choice_or_import
from vedette_rl.settings.for_peers import LEARNER_ONLY
from vedette_rl.settings.later_keys import LATER_KEY
from vedette_rl.settings.stored import IN_SAMPLES, IN_WEIGHTS

Width = Annotated[int, Field(ge=1, le=16_384)]  # two such layers: 1.1 GB of weights
Widths = Annotated[tuple[Width, ...], Field(max_length=64)]
ImageMax = Annotated[int, Field(ge=1, le=255)]
HiddenSizes = Annotated[Widths, Field(min_length=1)]


class NetworkConfig(AgentConfig):
    """The network between an observation and an agent's outputs."""

    synonyms: ClassVar[Mapping[str, str]] = {
        "network": "model net network_type policy_network q_network architecture",
        "hidden_sizes": "net_arch hidden hidden_size hidden_layers hidden_dim hidden_units "
        "layers units fcnet_hiddens mlp_hidden",
        "normalize_observations": "normalize_obs norm_obs obs_normalization observation_filter",
    }
    custom_network_is_whole: ClassVar[bool] = False
    lone_image_is_normalized: ClassVar[bool] = False
    """True: an image that is the whole observation has features of `image_features` too."""

    @property
    def core_size(self) -> int:
        """H, the numbers of the recurrent core's state; 0 where there is none."""
        return 0

    network: Annotated[str, choice_or_import("auto", "mlp", "cnn"), IN_WEIGHTS] = "auto"
    """``auto`` takes uint8 images through convolutions, and everything else flattened: of a
    dictionary with images, each image and the rest become features, which are concatenated.
    ``cnn`` is the same and refuses an observation without images; ``mlp`` flattens images too.
    Frames and colours of a stack of images are the image's channels. ``module:Name`` is an
    `nn.Module` of your own: for DQN the whole Q-network, for the others the encoder in front of
    the agent's own layers (`vedette_rl.networks.encoder`)."""
    hidden_sizes: Annotated[HiddenSizes, IN_WEIGHTS] = (256, 256)
    """fully connected ReLU layers behind a flattened observation, or behind the features of images
    and vectors."""
    cnn_hidden_sizes: Annotated[HiddenSizes, IN_WEIGHTS] = (512,)
    """fully connected ReLU layers behind the convolutions of an image that is the whole observation
    (512: Mnih et al. 2015, methods); for agents of continuous actions it is `hidden_sizes`."""
    convolutions: Annotated[Literal["auto", "nature", "drq", "small"], IN_WEIGHTS] = "auto"
    """convolutions of each image: ``nature`` has 3 layers (Mnih et al. 2015), ``drq`` 4 of 3x3
    (DrQ-v2, arXiv:2107.09645), ``small`` 2 of 3x3; ``auto`` is ``nature`` from 36 pixels a side on,
    and ``small`` for smaller ones with channels."""
    image_max: Annotated[dict[str, ImageMax], IN_WEIGHTS, LATER_KEY] = {}  # noqa: RUF012 - pydantic copies it
    """what the pixels of uint8 images are divided by before their convolutions, by the image's
    column (``obs``, or ``obs/KEY`` of a dictionary); 255 where nothing is said. A new run says the
    largest `high` of each image's space that does not end at 255, such as planes of 0 and 1."""
    image_features: Annotated[Width, IN_WEIGHTS] = 256
    """features of each image of several parts: ``tanh(norm(linear(convolutions)))`` (256: SERL,
    arXiv:2401.16013, the authors' code; 50 in DrQ-v2)."""
    vector_features: Annotated[Width, IN_WEIGHTS] = 64
    """features of everything beside the images, ``tanh(norm(linear(vector)))`` (64: SERL)."""
    shared_cnn: Annotated[bool, IN_WEIGHTS] = False
    """all images go through the same weights; they must have one shape."""
    random_shift: Annotated[Annotated[int, Field(ge=0)] | Literal["auto"], LEARNER_ONLY] = 0
    """shift each image of a batch at random by up to this many pixels, of ``obs`` and of
    ``next_obs``; 0 is off; ``auto`` is a 21st of the image's shorter side (4 pixels of 84: DrQ-v2,
    arXiv:2107.09645)."""
    normalize_observations: Annotated[bool, IN_WEIGHTS] = False
    """scale each number of the observation by the running mean and deviation of the batches that
    are learned from, clipped to +-10; pixels, categories and bits stay as they are. The statistics
    travel, are saved and are exported with the weights."""


class MemoryConfig(NetworkConfig):
    """A network that may have a recurrent core between its encoder and its layers."""

    synonyms: ClassVar[Mapping[str, str]] = {
        "memory": "recurrent use_lstm lstm gru rnn recurrent_policy",
        "memory_size": "lstm_hidden_size rnn_hidden_size gru_size lstm_size rnn_size "
        "lstm_cell_size hidden_state_size",
    }

    memory: Annotated[Literal["none", "gru"], IN_WEIGHTS, IN_SAMPLES, LATER_KEY] = "none"
    """``gru`` remembers what was seen since the episode began, by a recurrent core between the
    encoder and the layers (Cho et al. 2014). It learns from sequences (`replay.sequence`), each
    from the memory that the actor had at its first step, which `replay.burn_in` renews (R2D2,
    Kapturowski et al. 2019); of a queue from whole runs, without burn-in."""
    memory_size: Annotated[Width, IN_WEIGHTS, IN_SAMPLES, LATER_KEY] = 128
    """numbers that are remembered (512: R2D2). Each sample holds them as it began."""
    memory_dtype: Annotated[Literal["float32", "float16"], IN_SAMPLES, LATER_KEY] = "float32"
    """how a sample holds them: ``float16`` takes half the room, and rounds them to three digits,
    which burn-in renews. Acting and learning compute in float32."""

    @property
    def core_size(self) -> int:
        """See `NetworkConfig.core_size`."""
        return self.memory_size if self.memory == "gru" else 0

    @property
    def learns_sequences(self) -> bool:  # type: ignore[override]  # of a class, but for this one
        """See `AgentConfig.learns_sequences`."""
        return self.core_size > 0

    def refuse_beside_memory(self, refused: Mapping[str, bool]) -> None:
        """Refuse settings that are not built beside a memory.

        Args:
            refused: by the setting that helps, True where it is needed.

        Raises:
            ValueError: there is a memory, and one is needed.
        """
        if self.core_size and (wrong := [setting for setting, is_set in refused.items() if is_set]):
            raise ValueError(
                f"memory is {self.memory}, which is not built beside it: set {', '.join(wrong)}"
            )


class DrawnMemoryConfig(MemoryConfig):
    """The same of an agent that learns from sequences which are drawn again and again."""

    @property
    def usual_sequence(self) -> UsualSequence | None:
        """See `AgentConfig.usual_sequence`."""
        return UsualSequence() if self.core_size else None

    @classmethod
    def fitting_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fewer sequences than there would be samples in a batch."""
        return {"batch_size": _SEQUENCES} if given["memory"] == "gru" else {}

    @property
    def usual_samples_per_insert(self) -> float:
        """As without memory, of a batch of as many sequences as are usual."""
        usual = super().usual_samples_per_insert
        if not self.core_size:
            return usual
        without: int = type(self).model_fields["batch_size"].default
        return usual * without / _SEQUENCES


_SEQUENCES = 32
"""Sequences of a batch where nothing is set."""
