"""The contract of agents: counting, model infos and saved states. Losses are in `loss_contract`."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np

from vedette_rl.core import Agent
from vedette_rl.storage.state_file import read_state, write_state
from vedette_rl.testing.loss_contract import LossContract, same_arrays, same_model


class AgentContract(LossContract):
    """A mixin of tests; give it your agent::

        class TestMyAgent(AgentContract):
            def make_spaces(self) -> Spaces: ...
            def make_agent(self, seed: int) -> Agent: ...     # on the CPU, deterministic by seed

    Set to False what is not true of yours: `bootstraps_through_truncation`,
    `bootstraps`, `takes_n_steps`, `takes_weights`, `plain_td_errors`; `discount` is what your
    agent discounts by (see `LossContract`).
    """

    def test_it_is_an_agent(self) -> None:
        assert isinstance(self.make_agent(0), Agent)

    def test_an_opt_is_counted_and_is_the_next_version(self) -> None:
        agent = self.make_agent(0)
        before = agent.opt_steps
        agent.opt(self.make_batch(0))
        assert agent.opt_steps > before
        assert agent.model_info().version == agent.opt_steps

    def test_td_errors_are_magnitudes_of_each_sample(self) -> None:
        td_errors = self.make_agent(0).opt(self.make_batch(0)).td_errors
        if td_errors is not None:
            assert tuple(td_errors.shape) == (self.batch_size,)
            assert bool((td_errors >= 0).all())
            assert not td_errors.requires_grad

    def test_scalars_are_read_only_when_asked(self) -> None:
        agent = self.make_agent(0)
        assert not agent.opt(self.make_batch(0)).record
        record = agent.opt(self.make_batch(1), record=True).record
        assert record
        assert all(math.isfinite(value) for value in record.values())

    def test_the_batch_is_left_alone(self) -> None:
        batch = self.make_batch(0)
        kept = {name: column.clone() for name, column in batch.items()}
        self.make_agent(0).opt(batch)
        assert all(bool((batch[name] == kept[name]).all()) for name in kept)

    def test_a_model_info_is_a_copy(self) -> None:
        agent = self.make_agent(0)
        model = agent.model_info()
        kept = {name: array.copy() for name, array in model.arrays.items()}
        for seed in range(3):
            agent.opt(self.make_batch(seed))
        assert all(np.array_equal(model.arrays[name], kept[name]) for name in kept)
        assert not same_arrays(kept, agent.model_info().arrays)

    def test_every_model_info_has_the_same_layout(self) -> None:
        agent = self.make_agent(0)
        first = agent.model_info().arrays
        agent.opt(self.make_batch(0))
        second = agent.model_info().arrays
        assert [*first] == [*second]
        for name, array in first.items():
            assert (array.shape, array.dtype) == (second[name].shape, second[name].dtype)
            assert array.flags.c_contiguous

    def test_a_saved_state_goes_on_as_if_nothing_had_happened(self) -> None:
        agent, again = self.make_agent(0), self.make_agent(1)
        for seed in range(5):
            agent.opt(self.make_batch(seed))
        with tempfile.TemporaryDirectory() as folder:
            write_state(Path(folder) / "state", agent.get_state(), {})
            again.set_state(read_state(Path(folder) / "state")[0])
        assert again.opt_steps == agent.opt_steps
        for seed in range(5, 10):
            agent.opt(self.make_batch(seed))
            again.opt(self.make_batch(seed))
        assert same_model(agent, again)

    def test_a_state_is_a_copy(self) -> None:
        agent, again = self.make_agent(0), self.make_agent(0)
        state = agent.get_state()
        agent.opt(self.make_batch(0))
        again.opt(self.make_batch(1))
        again.set_state(state)
        assert same_model(again, self.make_agent(0))
