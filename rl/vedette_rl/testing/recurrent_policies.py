"""The contract of policies with memory, which agents with memory keep beside their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Agent, ColumnPolicy, Columns, ModelInfo, Policy, RowColumn, act_of
from vedette_rl.core.protocols import implements
from vedette_rl.envs.spaces import Spaces
from vedette_rl.testing.inputs import sampled_obs


class RecurrentPolicyContract:
    """The part of the contracts of agents with memory that is about acting.

    Attributes:
        batch_size: the environments that are acted in.
        columns: what the agent declares (`AgentKind.columns`), its memory with ``first=True``.
    """

    batch_size = 16
    columns: Sequence[RowColumn] = ()

    def make_spaces(self) -> Spaces:
        """The spaces that the agent is for."""
        raise NotImplementedError

    def make_agent(self, seed: int) -> Agent:
        """A new agent; the same one for the same seed."""
        raise NotImplementedError

    def make_policy(self, envs: int, seed: int) -> Policy:
        """A new policy for a vector of `envs`."""
        raise NotImplementedError

    def make_model(self, seed: int) -> ModelInfo:
        """A new agent's model, for `PolicyContract`."""
        return self.make_agent(seed).model_info()

    def test_environments_are_remembered_each_for_itself(self) -> None:
        order = np.roll(np.arange(self.batch_size), 3)
        one, other = self.acting_together(), self.acting_together()
        for step in range(4):
            obs = self.observations(step)
            begins = np.full(self.batch_size, step == 0)
            actions = act_of(one)(obs, explore=False, begins=begins)
            moved = {name: column[order] for name, column in obs.items()}
            expected = act_of(other)(moved, explore=False, begins=begins)
            np.testing.assert_allclose(actions[order], expected, rtol=1e-4, atol=1e-5)

    def test_a_beginning_forgets_in_its_own_row_alone(self) -> None:
        """The stored memory of a step is that of a new episode where one begins, and only there."""
        policy = self.acting_together()
        every = np.ones(self.batch_size, np.bool_)
        first = self.stored_after(policy, 0, every)
        one = np.zeros(self.batch_size, np.bool_)
        one[1] = True
        second = self.stored_after(policy, 1, one)
        for name, column in second.items():
            same = (column == first[name]).reshape(self.batch_size, -1).all(axis=1)
            assert same[1], f"column {name!r} holds more than nothing where an episode begins"
            assert not np.delete(same, 1).any(), (
                f"column {name!r} forgets where none begins, or is what was remembered later"
            )

    def stored_after(self, policy: Policy, seed: int, begins: NDArray[np.bool_]) -> Columns:
        """The memory columns of an action on these observations. Copies."""
        act_of(policy)(self.observations(seed), explore=False, begins=begins)
        return self.stored(policy)

    def stored(self, policy: Policy) -> Columns:
        """The memory columns of what a policy acted on last. Copies."""
        assert implements(policy, ColumnPolicy), "it has no acted_columns()"
        acted = policy.acted_columns()
        return {c.name: acted[c.name].copy() for c in self.columns if c.first}

    def acting_together(self) -> Policy:
        """A policy that has a model, for `batch_size` environments."""
        policy = self.make_policy(self.batch_size, 0)
        policy.sync_model(self.make_agent(0).model_info())
        return policy

    def observations(self, seed: int) -> Columns:
        """One observation of each."""
        return sampled_obs(self.make_spaces().observation, self.batch_size, seed)


def is_observation(name: str) -> bool:
    """True for the columns of ``obs``."""
    return name == "obs" or name.startswith("obs/")
