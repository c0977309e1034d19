"""The interface of replay buffers, which the trainer samples from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.core.learning import State


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows drawn from the replay.

    Args:
        columns: ``(B, *shape)`` each, owned by the buffer and overwritten by the next call.
        indices: ``(B,)`` int64, the rows' numbers since the run began (not places in the ring).
        weights: importance-sampling weights ``(B,)`` float32; None means all 1 (uniform).
    """

    columns: Columns
    indices: NDArray[Any]
    weights: NDArray[Any] | None = None


@runtime_checkable
class ReplayBuffer(Protocol):
    """Gives samples; rows are inserted through another interface."""

    def __len__(self) -> int:
        """Rows that can be drawn now."""
        ...

    @property
    def inserted(self) -> int:
        """Rows inserted since the run began, overwritten ones too."""
        ...

    def sample(self, batch_size: int) -> Sample:
        """Draw `batch_size` rows with replacement.

        Raises:
            EmptyReplayError: nothing has been inserted yet.
        """
        ...

    def get_state(self) -> State:
        """The state that a resumed run needs besides the rows: the generator and the schedules."""
        ...

    def set_state(self, state: State) -> None:
        """Continue to draw from `state`."""
        ...

    def update_priority(self, indices: NDArray[Any], td_errors: NDArray[Any]) -> None:
        """Set the absolute TD errors of rows drawn before. A uniform buffer does nothing."""
        ...
