"""A replay of the user's own, by name, and the built-in ones by the same contract."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vedette_rl.core import Sample
from vedette_rl.errors import CustomPartError, EmptyReplayError, UnknownNameError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import DrawnRows, UniformReplay, make_custom_replay
from vedette_rl.testing import ReplayBufferContract
from vedette_rl.testing.contracts import NUMBERED, numbered


class Recent(DrawnRows):
    """Draws the newest rows more often: two draws, of which the later row counts."""

    def __init__(self, rows: Any, rng: Any, config: Any, draws: int = 2) -> None:
        super().__init__(rows, rng, config)
        self.draws = draws

    def sample(self, batch_size: int) -> Sample:
        oldest, inserted = self.rows.live()
        if oldest == inserted:
            raise EmptyReplayError
        numbers = self.rng.integers(oldest, inserted, (self.draws, batch_size)).max(0)
        columns = self.gather(numbers)
        self.redraw_stale(numbers, columns)
        return Sample(columns, numbers)

    def update_priority(self, indices: NDArray[Any], td_errors: NDArray[Any]) -> None:
        """Nothing."""

    def get_state(self) -> dict[str, Any]:
        return {"rng": self.rng.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]


class TestUniform(ReplayBufferContract):
    replay = UniformReplay


class TestPrioritized(ReplayBufferContract):
    replay = PrioritizedReplay


class TestRecent(ReplayBufferContract):
    replay = Recent


class Half(UniformReplay):
    def sample(self, batch_size: int) -> Sample:
        return super().sample(batch_size // 2)


class Mapped(UniformReplay):
    def sample(self, batch_size: int) -> Any:
        return dict(super().sample(batch_size))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Half", r"'number' of shape \(4,\); return 8 rows"),
        ("Mapped", r"a dict; return vedette_rl\.core\.Sample\(columns, indices\)"),
    ],
)
def test_what_a_replay_draws_first_is_checked(name: str, why: str) -> None:
    rows = MemoryRing(NUMBERED, 8)
    rows.append(numbered(0, 8), 8)
    rows.commit()
    named = ReplayConfig(name=f"{__name__}:{name}")
    own = make_custom_replay(named, rows, np.random.default_rng(0))
    with pytest.raises(
        CustomPartError, match=rf"replay.name is '.*{name}': its sample.. returned {why}"
    ):
        own.sample(8)
    assert "sample" not in vars(own)  # later draws are as fast as before


class NoReplay:
    def __init__(self, *_: Any) -> None:
        """It draws nothing."""


def test_a_replay_of_a_name_is_made_with_its_own_arguments() -> None:
    rows = MemoryRing(NUMBERED, 8)
    rng = np.random.default_rng(0)
    named = ReplayConfig(name=f"{__name__}:Recent", kwargs={"draws": 3})
    own = make_custom_replay(named, rows, rng)
    assert isinstance(own, Recent)
    assert (own.draws, own.rows, own.config) == (3, rows, named)
    with pytest.raises(
        UnknownNameError, match=r"NoReplay': it is no ReplayBuffer: it lacks __len__, get_"
    ):
        make_custom_replay(ReplayConfig(name=f"{__name__}:NoReplay"), rows, rng)
    with pytest.raises(ValueError, match="kwargs are for a replay of your own"):
        ReplayConfig.model_validate({"kwargs": {"draws": 3}})
