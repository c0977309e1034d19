"""The contract of agents: losses, counting, model infos and saved states.

Each test of a loss takes agents of one state and one seed, so random ones draw the same numbers,
through an optimization step on batches or weights that must, or must not, make a difference.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Agent, RowColumn
from vedette_rl.core.protocols import missing_members
from vedette_rl.envs.spaces import Spaces
from vedette_rl.storage.state_file import read_state, write_state
from vedette_rl.testing.contracts import assert_same_model, same_state, state_numbers
from vedette_rl.testing.inputs import sampled_transitions

if TYPE_CHECKING:
    import torch

_LARGE_REWARD = 100.0
"""Beyond what a new network predicts: it decides the sign of a TD error."""
_OWN_GENERATOR = "or it draws from torch's own random numbers: give it a torch.Generator"
_ROWS = 256
"""Of all batches together, over which what is random evens out."""


class LossContract:
    """The part of `AgentContract` that checks what is learned.

    Attributes:
        batch_size: of the batches; 8 or more, 32 where the loss itself draws random numbers.
        bootstraps: it values what comes after a transition by `next_obs`. False for a bandit's
            or Monte Carlo's.
        bootstraps_through_truncation: False for one that takes truncation as an end.
        takes_n_steps: False for one of transitions of one step, or that discounts nothing.
        takes_weights: False for one that is never given prioritized replay.
        plain_td_errors: its TD errors are ``|r + discount**n_steps v(next_obs) - q(obs, action)|``
            of each row by itself, its reward scaled or not. False for those of a distribution or of
            rescaled values, of clipped rewards, and for a network that depends on the whole batch
            (batch normalization).
        discount: what `make_agent` makes its agent discount each step by; None: it is not looked
            at. A power too many or too few (``discount**(n_steps + 1)``) cannot be seen from here:
            it looks like another value.
        columns: what the agent declares (`AgentKind.columns`): batches have them.
    """

    batch_size = 32
    columns: Sequence[RowColumn] = ()
    bootstraps = True
    bootstraps_through_truncation = True
    takes_n_steps = True
    takes_weights = True
    plain_td_errors = True
    discount: float | None = None
    _threads: ClassVar[int] = 0

    @classmethod
    def setup_class(cls) -> None:
        """Let torch use one thread: on busy cores, two that wait for each other are many times
        slower. pytest calls this before the first test."""
        import torch

        cls._threads = torch.get_num_threads()
        torch.set_num_threads(1)

    @classmethod
    def teardown_class(cls) -> None:
        """Give torch its threads back. pytest calls this after the last test."""
        import torch

        torch.set_num_threads(cls._threads)

    def make_spaces(self) -> Spaces:
        """The spaces that the agent is for."""
        raise NotImplementedError

    def make_agent(self, seed: int) -> Agent:
        """A new agent; the same one for the same seed."""
        raise NotImplementedError

    def make_batch(self, seed: int) -> dict[str, torch.Tensor]:
        """A batch of transitions drawn from the spaces."""
        import torch

        spaces = self.make_spaces()
        columns = sampled_transitions(spaces, self.batch_size, seed, self.columns)
        return {name: torch.from_numpy(column) for name, column in columns.items()}

    def test_weights_of_one_are_no_weights(self) -> None:
        import torch

        if not self.takes_weights:
            return
        one, other = self.make_agent(0), self.make_agent(0)
        one.opt(self.make_batch(0))
        other.opt(self.make_batch(0), torch.ones(self.batch_size))
        assert_same_model(one, other, f"weights of 1 are not as none, {_OWN_GENERATOR}")

    def test_a_weight_of_zero_leaves_a_sample_out(self) -> None:
        """A changed reward moves the agent as far as its weight lets it."""
        import torch

        if not self.takes_weights:
            return
        batch, changed = self._ended(0), self._ended(0)
        changed["reward"][::2] = -_LARGE_REWARD
        ones = torch.ones(self.batch_size)
        none_and_two = ones * 2.0
        none_and_two[::2] = 0.0  # their mean is 1, too: a weight is a sample's, not the batch's
        weighed = self._apart(batch, none_and_two, changed, none_and_two)
        unweighed = self._apart(batch, ones, changed, ones)
        assert unweighed > 0.0, "another reward makes no difference to what is learned"
        assert weighed < 0.5 * unweighed, "samples of weight 0 have an influence"

    def test_a_weight_multiplies_a_sample_once(self) -> None:
        """Two copies of a sample are nearer to one of weight 2 than to one of its root, which is
        what equals them where weights are squared. Nearer, because random agents draw other numbers
        for the copy."""
        if not self.takes_weights:
            return
        copies, doubled, root = self._weights_of_copies()
        near = 0.0
        far = 0.0
        for seed in range(max(4, _ROWS // self.batch_size)):
            batch = self._two_samples(seed)
            near += self._apart(batch, copies, batch, doubled, seed)
            far += self._apart(batch, copies, batch, root, seed)
        assert near < far, "a sample of weight 2 counts otherwise than two of weight 1"

    def test_td_errors_are_not_weighted(self) -> None:
        """A priority that a weight has made smaller would be drawn too seldom ever after."""
        import torch

        if not self.takes_weights:
            return
        weights = torch.full((self.batch_size,), 2.0)
        weights[::2] = 0.5
        batch = self._ended(0)
        one = self._td_errors(batch)
        weighed = self._td_errors(batch, weights)
        if one is None or weighed is None:
            return
        # nearly: an agent may compute them after the step
        assert np.allclose(one, weighed, rtol=0.05), "weights make a difference to TD errors"

    def test_td_errors_are_linear_in_the_reward(self) -> None:
        """For opposite rewards R, large enough, ``|x + R| + |x - R|`` is 2 R, whatever x is."""
        td_errors = self._td_errors(self._going_on(0))
        if not self.plain_td_errors or td_errors is None:
            return
        large = 10.0 * max(_LARGE_REWARD, float(td_errors.max()))
        once, twice = (self._sum_of_opposites(reward) for reward in (large, 2.0 * large))
        assert np.abs(twice - once).max() > 1e-3 * once.max(), (
            "large rewards and larger ones have the same TD errors: are these clipped, "
            "or do rewards not count?"
        )
        assert np.allclose(twice, 2.0 * once, rtol=1e-3), (
            "TD errors are not linear in the reward: are they squared?"
        )
        assert np.allclose(once, once.mean(), rtol=1e-3), (
            "the same reward counts more in some rows' TD errors than in others'"
        )

    def test_a_rows_td_error_is_its_own(self) -> None:
        if not self.plain_td_errors:
            return
        batch = self._going_on(0)
        other = self._going_on(2)
        changed = {name: column.clone() for name, column in batch.items()}
        for name, column in changed.items():
            column[1] = other[name][1]
        one, another = self._td_errors(batch), self._td_errors(changed)
        if one is None or another is None:
            return
        differ = ~np.isclose(one, another, rtol=1e-4, atol=1e-5)
        assert not np.delete(differ, 1).any(), "a row's TD error depends on another row"
        assert differ[1], "another transition in a row makes no difference to its TD error"

    def test_only_termination_ends_the_value(self) -> None:
        if not (self.bootstraps and self.bootstraps_through_truncation):
            return
        plain, truncated, terminated = (self.make_batch(0) for _ in range(3))
        for batch in (plain, truncated, terminated):
            batch["terminated"].fill_(value=False)
            batch["truncated"].fill_(value=False)
        truncated["truncated"].fill_(value=True)
        terminated["terminated"].fill_(value=True)
        models = []
        for batch in (plain, truncated, terminated):
            agent = self.make_agent(0)
            for _ in range(3):
                agent.opt(batch)
            models.append(agent)
        what = f"truncation changes what is learned, which only termination may, {_OWN_GENERATOR}"
        assert_same_model(models[0], models[1], what)
        assert not same_state(models[0], models[2]), "termination makes no difference"

    def test_what_comes_after_is_seen_in_next_obs(self) -> None:
        if not self.bootstraps:
            return
        assert not np.array_equal(
            self._errors_or_state(self._going_on(0)), self._errors_or_state(self._elsewhere(0))
        ), "another next_obs makes no difference: is the next value that of obs?"

    def test_nothing_comes_after_a_terminated_row(self) -> None:
        if not (self.bootstraps and self.plain_td_errors):
            return
        batch, elsewhere = self._going_on(0), self._elsewhere(0)
        for each in (batch, elsewhere):
            each["terminated"][::2] = True
        one, other = self._td_errors(batch), self._td_errors(elsewhere)
        if one is None or other is None:
            return
        assert np.allclose(one[::2], other[::2]), "next_obs counts in rows that are terminated"
        assert not np.array_equal(one[1::2], other[1::2])

    def test_what_comes_after_is_discounted_by_each_step(self) -> None:
        if not (self.bootstraps and self.takes_n_steps):
            return
        assert not np.array_equal(
            self._errors_or_state(self._going_on(0, n_steps=1)),
            self._errors_or_state(self._going_on(0, n_steps=5)),
        ), "n_steps makes no difference: is it discount instead of discount**n_steps?"

    def test_every_further_step_discounts_alike(self) -> None:
        """The next value counts discount**n: its parts of TD errors are a geometric series."""
        if not (self.bootstraps and self.takes_n_steps and self.plain_td_errors):
            return
        after = self._what_comes_after(1, 3, 5)
        if after is None:
            return
        after_1, after_3, after_5 = after
        near = 1e-5 * _LARGE_REWARD * np.abs(after_1).max()  # float32 beside a large reward
        np.testing.assert_allclose(after_1 * after_5, after_3**2, rtol=1e-3, atol=near)

    def test_the_discount_is_the_one_it_says(self) -> None:
        if self.discount is None or not (
            self.bootstraps and self.takes_n_steps and self.plain_td_errors
        ):
            return
        after = self._what_comes_after(1, 9)
        if after is None or not after[0].any():
            return
        after_1, after_9 = after
        ratio = float(after_9 @ after_1 / (after_1 @ after_1))  # by least squares over rows
        # float32 beside a large reward, the more so the smaller what comes after is
        near = 1e-3 + 2e-7 * _LARGE_REWARD / math.sqrt(float(np.mean(after_1**2)))
        assert abs(ratio - self.discount**8) < near, (
            f"eight more steps discount by {ratio:.4f}, not by "
            f"{self.discount:g}**8 = {self.discount**8:.4f}"
        )

    def _going_on(self, seed: int, n_steps: int = 1) -> dict[str, torch.Tensor]:
        """A batch in which no episode ends."""
        batch = self.make_batch(seed)
        for name, value in (("terminated", 0), ("truncated", 0), ("n_steps", n_steps)):
            batch[name].fill_(value)
        return batch

    def _ended(self, seed: int) -> dict[str, torch.Tensor]:
        """The same batch with all rows terminated, so without a next value and what is random in
        it, and with a reward that is the larger part of TD errors."""
        batch = self._going_on(seed)
        batch["terminated"].fill_(value=True)
        batch["reward"].fill_(_LARGE_REWARD)
        return batch

    def _elsewhere(self, seed: int) -> dict[str, torch.Tensor]:
        """The batch of `_going_on` with other next observations."""
        other = self.make_batch(seed + 1)
        after = {name: column for name, column in other.items() if name.startswith("next_")}
        return {**self._going_on(seed), **after}

    def _two_samples(self, seed: int) -> dict[str, torch.Tensor]:
        """A batch [a, a, a, ..., b, b, b, ...], whose TD errors have different signs."""
        batch = self._ended(seed)
        half = self.batch_size // 4 * 2
        for column in batch.values():
            column[:half], column[half:] = column[:1].clone(), column[-1:].clone()
        batch["reward"][half:] = -_LARGE_REWARD
        return batch

    def _weights_of_copies(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Weights of those samples: [1, 1, ...], [2, 0, ...] and [root of 2, 0, ...] of a; those of
        b are 2, so that normalizing by the largest changes nothing."""
        import torch

        half = self.batch_size // 4 * 2
        copies, doubled, root = (torch.full((self.batch_size,), 2.0) for _ in range(3))
        copies[:half] = 1.0
        doubled[1:half:2] = root[1:half:2] = 0.0
        root[:half:2] = math.sqrt(2.0)
        return copies, doubled, root

    def _after(self, batch: Mapping[str, torch.Tensor], weights: torch.Tensor, seed: int) -> Agent:
        agent = self.make_agent(seed)
        agent.opt(batch, weights)
        return agent

    def _td_errors(
        self, batch: Mapping[str, torch.Tensor], weights: torch.Tensor | None = None
    ) -> NDArray[np.float64] | None:
        td_errors = self._begun().opt(batch, weights).td_errors
        return None if td_errors is None else td_errors.double().numpy()

    def _of_opposite_rewards(
        self, batch: Mapping[str, torch.Tensor], reward: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """TD errors where all rewards are this, and where they are its opposite."""
        import torch

        rewards = torch.full_like(batch["reward"], reward)
        more = self._td_errors({**batch, "reward": rewards})
        less = self._td_errors({**batch, "reward": -rewards})
        return None if more is None or less is None else (more, less)

    def _sum_of_opposites(self, reward: float) -> NDArray[np.float64]:
        opposites = self._of_opposite_rewards(self._going_on(0), reward)
        assert opposites is not None, "TD errors are returned at one step and not at another"
        return opposites[0] + opposites[1]

    def _what_comes_after(self, *n_steps: int) -> list[NDArray[np.float64]] | None:
        """``discount**n v(next_obs)``, but for the sign, of the rows where it can be seen; None
        where the agent returns no TD errors."""
        batches = (self._ended(0), *(self._going_on(0, n_steps=n) for n in n_steps))
        errors = [self._signed_td_errors(batch) for batch in batches]
        known_errors = [error for error in errors if error is not None]
        if len(known_errors) < len(errors):
            return None
        known = np.isfinite(np.sum(known_errors, axis=0))
        assert known.any(), (
            f"rewards of {_LARGE_REWARD:g} and of {-_LARGE_REWARD:g} make no difference to TD "
            "errors: do rewards not count, or are they clipped?"
        )
        ended, *after = (error[known] for error in known_errors)
        return [error - ended for error in after]

    def _signed_td_errors(self, batch: Mapping[str, torch.Tensor]) -> NDArray[np.float64] | None:
        """TD errors but for a constant, with their sign: half of what they are more by a large
        reward than by its opposite. Not a number where they exceed that reward."""
        opposites = self._of_opposite_rewards(batch, _LARGE_REWARD)
        if opposites is None:
            return None
        more, less = opposites
        both = more + less  # |R + x| + |x - R| is 2 R, and more only where |x| is more than R
        return np.where(both <= both.min() * (1.0 + 1e-5), (more - less) / 2.0, np.nan)

    def _begun(self) -> Agent:
        """An agent that has learned a little: many begin with values of zero."""
        agent = self.make_agent(0)
        for seed in range(3):
            agent.opt(self.make_batch(seed))
        return agent

    def _errors_or_state(self, batch: Mapping[str, torch.Tensor]) -> NDArray[np.float64]:
        """The TD errors; the state after learning, of an agent that returns none."""
        errors = self._td_errors(batch)
        if errors is not None:
            return errors
        agent = self._begun()
        agent.opt(batch)
        return state_numbers(agent)

    def _apart(
        self,
        batch: Mapping[str, torch.Tensor],
        weights: torch.Tensor,
        other_batch: Mapping[str, torch.Tensor],
        other_weights: torch.Tensor,
        seed: int = 0,
    ) -> float:
        """The distance between the results of two steps from the same state."""
        one = state_numbers(self._after(batch, weights, seed))
        other = state_numbers(self._after(other_batch, other_weights, seed))
        return float(np.linalg.norm(one - other))


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
        agent = self.make_agent(0)
        missing = missing_members(agent, Agent)
        assert not missing, f"{type(agent).__name__} lacks {', '.join(missing)}"

    def test_an_opt_is_counted_and_is_the_next_version(self) -> None:
        agent = self.make_agent(0)
        before = agent.opt_steps
        agent.opt(self.make_batch(0))
        after = agent.opt_steps
        version = agent.model_info().version
        assert after > before, f"opt_steps is {after} after a step and was {before} before"
        assert version == after, f"the model info's version is {version}, opt_steps is {after}"

    def test_td_errors_are_magnitudes_of_each_sample(self) -> None:
        td_errors = self.make_agent(0).opt(self.make_batch(0)).td_errors
        if td_errors is not None:
            shape = tuple(td_errors.shape)
            assert shape == (self.batch_size,), f"TD errors {shape}, not {(self.batch_size,)}"
            assert bool((td_errors >= 0).all()), (
                f"a TD error is {float(td_errors.min()):g}, below 0"
            )
            assert not td_errors.requires_grad, "TD errors have a gradient: detach them"

    def test_scalars_are_read_only_when_asked(self) -> None:
        agent = self.make_agent(0)
        unasked = agent.opt(self.make_batch(0)).record
        assert not unasked, f"scalars without being asked: {dict(unasked)}"
        record = agent.opt(self.make_batch(1), record=True).record
        assert record, "no scalars with record=True"
        wrong = {name: value for name, value in record.items() if not math.isfinite(value)}
        assert not wrong, f"scalars that are not finite: {wrong}"

    def test_the_batch_is_left_alone(self) -> None:
        batch = self.make_batch(0)
        kept = {name: column.clone() for name, column in batch.items()}
        self.make_agent(0).opt(batch)
        written = [name for name in kept if not bool((batch[name] == kept[name]).all())]
        assert not written, f"opt writes over columns of its batch: {written}"

    def test_a_model_info_is_a_copy(self) -> None:
        agent = self.make_agent(0)
        model = agent.model_info()
        kept = {name: array.copy() for name, array in model.arrays.items()}
        for seed in range(3):
            agent.opt(self.make_batch(seed))
        views = [name for name in kept if not np.array_equal(model.arrays[name], kept[name])]
        assert not views, f"arrays of a model info change with later steps, copy them: {views}"
        now = agent.model_info().arrays
        moved = [name for name in kept if not np.array_equal(now[name], kept[name])]
        assert moved, "three optimization steps change no array of the model info"

    def test_every_model_info_has_the_same_layout(self) -> None:
        agent = self.make_agent(0)
        first = agent.model_info().arrays
        agent.opt(self.make_batch(0))
        second = agent.model_info().arrays
        assert [*first] == [*second], f"first it has {[*first]}, then {[*second]}"
        for name, array in first.items():
            was = (array.shape, array.dtype)
            became = (second[name].shape, second[name].dtype)
            assert was == became, f"array {name!r} is {was} first, then {became}"
            assert array.flags.c_contiguous, f"array {name!r} is not contiguous"

    def test_a_saved_state_goes_on_as_if_nothing_had_happened(self) -> None:
        agent = self.make_agent(0)
        again = self.make_agent(1)
        for seed in range(5):
            agent.opt(self.make_batch(seed))
        with tempfile.TemporaryDirectory() as folder:
            write_state(Path(folder) / "state", agent.get_state(), {})
            again.set_state(read_state(Path(folder) / "state")[0])
        opt_steps = again.opt_steps
        expected = agent.opt_steps
        assert opt_steps == expected, f"opt_steps is {opt_steps} after set_state, not {expected}"
        for seed in range(5, 10):
            agent.opt(self.make_batch(seed))
            again.opt(self.make_batch(seed))
        what = "after set_state it learns otherwise: the state lacks something (a target, the"
        assert_same_model(agent, again, f"{what} optimizer, its generator), {_OWN_GENERATOR}")

    def test_a_state_is_a_copy(self) -> None:
        agent, again = self.make_agent(0), self.make_agent(0)
        state = agent.get_state()
        agent.opt(self.make_batch(0))
        again.opt(self.make_batch(1))
        again.set_state(state)
        what = f"set_state does not bring back what get_state gave: copy it, {_OWN_GENERATOR}"
        assert_same_model(again, self.make_agent(0), what)
