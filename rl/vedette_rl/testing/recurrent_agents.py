"""The contract of agents with memory: of both halves, since what one stores the other begins with.

Batches are of sequences, as `vedette_rl.replay.drawn_sequences` has them. Shapes: B sequences, N
rows of burn-in, T rows to learn from, L = N + T.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from vedette_rl.core import Agent, Columns, act_of
from vedette_rl.core.columns import BURNED, LEARNED, LENGTH
from vedette_rl.core.learning import SequenceAgent
from vedette_rl.core.protocols import implements
from vedette_rl.testing.agents import AgentContract
from vedette_rl.testing.contracts import assert_same_model, same_state
from vedette_rl.testing.inputs import sampled_sequences, sampled_values
from vedette_rl.testing.recurrent_policies import RecurrentPolicyContract, is_observation

if TYPE_CHECKING:
    import torch

_LARGE_REWARD = 1_000.0


class RecurrentAgentContract(RecurrentPolicyContract, AgentContract):
    """A mixin of tests; give it both halves of your agent, and `PolicyContract` beside it::

        class TestMyAgent(RecurrentAgentContract, PolicyContract):
            columns = ...       # what `AgentKind.columns` declares, the memory among them

            def make_spaces(self) -> Spaces: ...
            def make_agent(self, seed: int) -> Agent: ...
            def make_policy(self, envs: int, seed: int) -> Policy: ...

    Attributes:
        steps, burn_in: T and N of the batches.
        begins_with_the_stored_memory: False for one that has networks which begin with another, or
            that normalises observations by statistics which the step itself moves.
        takes_burn_in: False for one that does not look at rows of burn-in.
    """

    steps = 4
    burn_in = 3
    begins_with_the_stored_memory = True
    takes_burn_in = True
    # The tests of these are on single transitions; those below are on sequences.
    bootstraps = False
    takes_n_steps = False
    plain_td_errors = False

    def make_batch(self, seed: int) -> dict[str, torch.Tensor]:
        """A batch of sequences drawn from the spaces."""
        import torch

        columns = sampled_sequences(
            self.make_spaces(), self.batch_size, self.steps, self.burn_in, seed, self.columns
        )
        return {name: torch.from_numpy(column) for name, column in columns.items()}

    def test_padding_makes_no_difference(self) -> None:
        one, other = self._told(0), self._told(0)
        errors = one.opt(self.make_batch(0)).td_errors
        others = other.opt(self._elsewhere_behind_the_ends(0)).td_errors
        if errors is not None and others is not None:
            np.testing.assert_array_equal(errors, others, "TD errors depend on padding")
        assert_same_model(one, other, "what lies behind a sequence's end is learned from")

    def test_rows_of_burn_in_are_not_learned_from(self) -> None:
        one, other = self._told(0), self._told(0)
        batch, changed = self.make_batch(0), self.make_batch(0)
        burning = self._burning(changed)
        changed["reward"][burning] = _LARGE_REWARD
        changed["terminated"][burning] = True
        one.opt(batch)
        other.opt(changed)
        assert_same_model(one, other, "rewards or ends of rows of burn-in make a difference")

    def test_rows_of_burn_in_are_remembered(self) -> None:
        if not self.takes_burn_in:
            return
        batch, changed = self.make_batch(0), self.make_batch(0)
        other = self.make_batch(1)
        for name, column in changed.items():
            if is_observation(name):
                at = self._burning(changed)
                column[:, :-1][at] = other[name][:, :-1][at]
        one, another = self._told(0), self._told(0)
        errors, others = one.opt(batch).td_errors, another.opt(changed).td_errors
        assert not same_state(one, another), "observations of burn-in make no difference"
        if errors is not None and others is not None:
            without = (batch[BURNED] == 0).numpy()
            differ = ~np.isclose(errors, others, rtol=1e-4, atol=1e-5)
            assert not differ[without].any(), "burn-in counts in a sequence that has none"

    def test_the_stored_memory_makes_a_difference(self) -> None:
        import torch

        batch, changed = self.make_batch(0), self.make_batch(0)
        stored = [column for column in self.columns if column.first]
        assert stored, "columns: no column is declared first=True, which a memory is"
        rng = np.random.default_rng(1)
        for column in stored:
            values = sampled_values(column, self.batch_size, rng)
            changed[column.name] = torch.from_numpy(values)
        one, another = self._told(0), self._told(0)
        one.opt(batch)
        another.opt(changed)
        assert not same_state(one, another), "the stored memory makes no difference"

    def test_a_learner_goes_on_from_the_memory_that_its_policy_stored(self) -> None:
        """On the same weights, a sequence that burns in from its episode's beginning is one that
        begins later with what the policy remembered then."""
        if not (self.begins_with_the_stored_memory and self.takes_burn_in):
            return
        whole = self._episodes()
        later = self._later(whole)
        errors, expected = (self._told(0).opt(batch).td_errors for batch in (later, whole))
        assert errors is not None, "TD errors"
        assert expected is not None, "TD errors"
        np.testing.assert_allclose(
            errors,
            expected,
            rtol=1e-3,
            atol=1e-4,
            err_msg="the policy's memory is not the learner's: is it that before the observation, "
            "and do both compute the same core?",
        )

    def test_only_termination_ends_a_sequences_value(self) -> None:
        plain, truncated, terminated = (self.make_batch(0) for _ in range(3))
        last = self._last(plain)
        for batch in (plain, truncated, terminated):
            batch["terminated"].fill_(value=False)
            batch["truncated"].fill_(value=False)
        truncated["truncated"][last] = True
        terminated["terminated"][last] = True
        agents = []
        for batch in (plain, truncated, terminated):
            agents.append(agent := self._told(0))
            for _ in range(3):
                agent.opt(batch)
        what = "truncation changes what is learned, which only termination may"
        assert_same_model(agents[0], agents[1], what)
        assert not same_state(agents[0], agents[2]), "termination makes no difference"

    def test_what_comes_after_a_sequence_is_seen(self) -> None:
        """The observation behind the last row is what its action led to."""
        batch, changed = self.make_batch(0), self.make_batch(0)
        other = self.make_batch(1)
        rows, at = self._last(batch)
        for each in (batch, changed):
            each["terminated"].fill_(value=False)
        for name, column in changed.items():
            if is_observation(name):
                column[rows, at + 1] = other[name][rows, at + 1]
        one, another = self._told(0), self._told(0)
        one.opt(batch)
        another.opt(changed)
        assert not same_state(one, another), "the last row's successor makes no difference"

    def test_a_sequence_with_a_large_error_has_a_large_td_error(self) -> None:
        batch = self.make_batch(0)
        at = int(batch[BURNED][2])
        batch["reward"][2, at] = _LARGE_REWARD
        td_errors = self._told(0).opt(batch).td_errors
        if td_errors is not None:
            assert int(td_errors.argmax()) == 2, "its TD error is not the largest of the batch"

    def _told(self, seed: int) -> Agent:
        """A new agent that knows the batches' burn-in, where it asks for it."""
        agent = self.make_agent(seed)
        if implements(agent, SequenceAgent):
            agent.expect_burn_in(self.burn_in)
        return agent

    def _burning(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The rows of burn-in ``(B, L)``."""
        import torch

        places = torch.arange(self.burn_in + self.steps)
        return places < batch[BURNED].unsqueeze(1)

    def _last(self, batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """The places of the last row of each sequence, as indices."""
        import torch

        return torch.arange(self.batch_size), batch[BURNED] + batch[LENGTH] - 1

    def _elsewhere_behind_the_ends(self, seed: int) -> dict[str, torch.Tensor]:
        """The batch with other values behind the ends."""
        import torch

        batch, other = self.make_batch(seed), self.make_batch(seed + 1)
        end = (batch[BURNED] + batch[LENGTH]).unsqueeze(1)
        firsts = {column.name for column in self.columns if column.first}
        for name, column in batch.items():
            if name in firsts or name in (BURNED, LENGTH, LEARNED):
                continue
            places = torch.arange(column.shape[1])
            behind = places >= end + is_observation(name)
            column[behind] = other[name][behind]
            if name == "reward":
                column[behind] = _LARGE_REWARD
        return batch

    def _episodes(self) -> dict[str, torch.Tensor]:
        """Sequences whose burn-in begins where their episodes do, and that go on."""
        import torch

        batch = self.make_batch(0)
        for name in ("terminated", "truncated"):
            batch[name].fill_(value=False)
        batch[BURNED].fill_(self.burn_in)
        batch[LENGTH].fill_(self.steps)
        places = torch.arange(self.burn_in + self.steps)
        batch[LEARNED][:] = places >= self.burn_in
        for name, column in self._stored_in(batch)[0].items():
            batch[name] = torch.from_numpy(column)
        return batch

    def _stored_in(self, batch: Mapping[str, torch.Tensor]) -> list[Columns]:
        """What a policy stores that plays a batch's observations: its memory before each."""
        policy = self.acting_together()
        stored = []
        for position in range(self.burn_in + 1):
            obs = {n: c[:, position].numpy() for n, c in batch.items() if is_observation(n)}
            begins = np.full(self.batch_size, position == 0)
            act_of(policy)(obs, explore=False, begins=begins)
            stored.append(self.stored(policy))
        return stored

    def _later(self, whole: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The same rows to learn from, without those of burn-in."""
        import torch

        later = {name: column.clone() for name, column in whole.items()}
        memory = self._stored_in(whole)[self.burn_in]
        for name, column in later.items():
            if name in memory:
                column[:] = torch.from_numpy(memory[name])
            elif name not in (BURNED, LENGTH):
                column[:, : column.shape[1] - self.burn_in] = whole[name][:, self.burn_in :]
        later[BURNED].fill_(0)
        later[LEARNED][:] = torch.arange(self.burn_in + self.steps) < self.steps
        return later
