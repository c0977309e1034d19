"""The contracts of agents that learn from blocks of a queue's runs, with memory and without.

A block is as `vedette_rl.replay.queue` has it. Shapes: K runs, T steps of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from vedette_rl.core import Agent
from vedette_rl.core.columns import BEGINS, LEARNED
from vedette_rl.testing.agents import AgentContract
from vedette_rl.testing.contracts import assert_same_model, same_state
from vedette_rl.testing.inputs import sampled_block, sampled_values
from vedette_rl.testing.recurrent_policies import RecurrentPolicyContract, is_observation

if TYPE_CHECKING:
    import torch

_LARGE_REWARD = 1_000.0


class BlockAgentContract(AgentContract):
    """A mixin of tests; give it your agent, as `AgentContract` wants it.

    Batches are blocks with a single minibatch, in which all rows are.

    Attributes:
        runs, steps: K and T of the blocks.
        counts_padding: True for one that normalises observations by statistics of all rows.
    """

    runs = 4
    steps = 6
    counts_padding = False
    # The tests of these are on single transitions; those below are on blocks.
    bootstraps = False
    takes_n_steps = False
    takes_weights = False
    plain_td_errors = False

    def make_batch(self, seed: int) -> dict[str, torch.Tensor]:
        """A block drawn from the spaces."""
        import torch

        columns = sampled_block(self.make_spaces(), self.runs, self.steps, seed, self.columns)
        return {name: torch.from_numpy(column) for name, column in columns.items()}

    def test_padding_makes_no_difference(self) -> None:
        batch, changed, other = self.make_batch(0), self.make_batch(0), self.make_batch(1)
        behind = ~batch[LEARNED]
        for name, column in changed.items():
            seen = is_observation(name.removeprefix("next_"))
            if name == LEARNED or self._is_first(name) or (seen and self.counts_padding):
                continue
            column[behind] = other[name][behind]
            if name == "reward":
                column[behind] = _LARGE_REWARD
        one, another = self._after_steps(batch), self._after_steps(changed)
        assert_same_model(one, another, "what lies behind a run's end is learned from")

    def test_termination_ends_a_value_and_truncation_does_not(self) -> None:
        """In the last step of runs, behind which nothing is known either way."""
        plain, truncated, terminated = (self.make_batch(0) for _ in range(3))
        for batch in (plain, truncated, terminated):
            batch["terminated"].fill_(value=False)
            batch["truncated"].fill_(value=False)
            batch[BEGINS].fill_(value=False)
            batch[LEARNED].fill_(value=True)
        truncated["truncated"][:, -1] = True
        terminated["terminated"][:, -1] = True
        agents = [self._after_steps(batch) for batch in (plain, truncated, terminated)]
        what = "truncation changes what is learned, which only termination may"
        assert_same_model(agents[0], agents[1], what)
        assert not same_state(agents[0], agents[2]), "termination makes no difference"

    def test_what_a_truncated_step_came_to_is_seen_and_of_a_terminated_one_is_not(self) -> None:
        batch, changed, other = self.make_batch(0), self.make_batch(0), self.make_batch(1)
        for end, counts in (("truncated", True), ("terminated", False)):
            for each in (batch, changed):
                each["terminated"].fill_(value=end == "terminated")
                each["truncated"].fill_(value=end == "truncated")
                each[BEGINS][:, 1:] = True
            for name in changed:
                if name.startswith("next_"):
                    changed[name] = other[name].clone()
            one, another = self._after_steps(batch), self._after_steps(changed)
            if counts:
                assert not same_state(one, another), "next_obs of a truncated step is not seen"
            else:
                assert_same_model(one, another, "next_obs of a terminated step is seen")

    def _after_steps(self, batch: Mapping[str, torch.Tensor]) -> Agent:
        """A new agent after some steps on a block."""
        agent = self.make_agent(0)
        for _ in range(3):
            agent.opt(batch)
        return agent

    def _is_first(self, name: str) -> bool:
        return any(column.name == name and column.first for column in self.columns)


class RecurrentBlockAgentContract(RecurrentPolicyContract, BlockAgentContract):
    """The same for an agent with memory.

    Give it both halves, and `PolicyContract` beside it::

        class TestMyAgent(RecurrentBlockAgentContract, PolicyContract):
            columns = ...       # what `AgentKind.columns` declares, the memory among them

            def make_spaces(self) -> Spaces: ...
            def make_agent(self, seed: int) -> Agent: ...
            def make_policy(self, envs: int, seed: int) -> Policy: ...
    """

    def test_the_stored_memory_makes_a_difference(self) -> None:
        import torch

        batch, changed = self.make_batch(0), self.make_batch(0)
        stored = [column for column in self.columns if column.first]
        assert stored, "columns: no column is declared first=True, which a memory is"
        rng = np.random.default_rng(1)
        for column in stored:
            changed[column.name] = torch.from_numpy(sampled_values(column, self.runs, rng))
        one, another = self._after_steps(batch), self._after_steps(changed)
        assert not same_state(one, another), "the stored memory makes no difference"
        for each in (batch, changed):
            each[BEGINS][:, 0] = True
        one, another = self._after_steps(batch), self._after_steps(changed)
        what = "the stored memory makes a difference where an episode begins"
        assert_same_model(one, another, what)

    def test_what_was_seen_earlier_in_the_episode_makes_a_difference(self) -> None:
        """A run is learned from in its order: the same rows as runs of one step, with the same
        memory before each run's first row and none before the others, are something else."""
        batch = self._going_on_runs()
        apart = self._as_runs_of(batch, self.steps)
        batch["truncated"].fill_(value=True)  # so that returns are those of single steps, too
        apart["truncated"].fill_(value=True)
        one, another = self._after_steps(batch), self._after_steps(apart)
        assert _distance(one, another) > 1e-5, "rows of a run are learned from each for itself"

    def test_an_episode_that_begins_within_a_run_is_one_of_its_own(self) -> None:
        """A run of two episodes is learned from as two runs."""
        batch = self._going_on_runs()
        half = self.steps // 2
        batch["truncated"][:, half - 1] = True
        batch[BEGINS][:, half] = True
        one, another = self._after_steps(batch), self._after_steps(self._as_runs_of(batch, 2))
        distance = _distance(one, another)
        assert distance < 1e-3, f"an episode begins with what was before: {distance:g}"

    def _going_on_runs(self) -> dict[str, torch.Tensor]:
        """A block of whole runs in which no episode ends."""
        batch = self.make_batch(0)
        for name in ("terminated", "truncated", BEGINS):
            batch[name].fill_(value=False)
        batch[LEARNED].fill_(value=True)
        return batch

    def _as_runs_of(self, batch: Mapping[str, torch.Tensor], parts: int) -> dict[str, torch.Tensor]:
        """The rows of a block as runs of a part of the steps, in the same order; the memory of all
        but the first part is nothing."""
        import torch

        cut = {}
        for name, column in batch.items():
            if self._is_first(name):
                memory = torch.zeros_like(column).unsqueeze(1).repeat_interleave(parts, dim=1)
                memory[:, 0] = column
                cut[name] = memory.flatten(0, 1)
            else:
                steps = self.steps // parts
                cut[name] = column.reshape(self.runs * parts, steps, *column.shape[2:])
        return cut


def _distance(one: Agent, other: Agent) -> float:
    """How far the models of two agents are apart: the largest difference of two numbers."""
    arrays, others = one.model_info().arrays, other.model_info().arrays
    return max(float(np.abs(array - others[name]).max()) for name, array in arrays.items())
