"""The contracts of policies, step processors and replay buffers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import (
    Agent,
    ColumnPolicy,
    Columns,
    ModelInfo,
    Policy,
    ReplayBuffer,
    RowColumn,
    StepProcessor,
    act_of,
    row_dtype,
)
from vedette_rl.core.learning import check_sample
from vedette_rl.core.protocols import implements, missing_members
from vedette_rl.envs.spaces import Spaces, action_field, transition_dtype
from vedette_rl.envs.vector_env import LoopVectorEnv, VectorEnvironment
from vedette_rl.errors import EmptyReplayError, ModelMismatchError
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.steps import prepare_steps
from vedette_rl.storage.state_file import read_state, write_state
from vedette_rl.testing.inputs import ScriptedEnv, sampled_obs


class PolicyContract:
    """A mixin of tests; give it your policy.

    ::

        class TestMyPolicy(PolicyContract):
            def make_spaces(self) -> Spaces: ...
            def make_policy(self, envs: int, seed: int) -> Policy: ...
            def make_model(self, seed: int) -> ModelInfo: ...

    Attributes:
        columns: what its agent declares (`AgentKind.columns`) and the policy fills.
    """

    envs = 5
    columns: Sequence[RowColumn] = ()

    def make_spaces(self) -> Spaces:
        """The spaces that the policy is for."""
        raise NotImplementedError

    def make_policy(self, envs: int, seed: int) -> Policy:
        """A new policy for a vector of `envs`; its exploration is the same for the same seed."""
        raise NotImplementedError

    def make_model(self, seed: int) -> ModelInfo:
        """A model info of its agent; another one for another seed."""
        raise NotImplementedError

    def acting(self, model_seed: int = 0, envs: int | None = None, seed: int = 0) -> Policy:
        """A policy that has a model."""
        policy = self.make_policy(envs or self.envs, seed)
        policy.sync_model(self.make_model(model_seed))
        return policy

    def actions(self, policy: Policy, *, explore: bool, rows: slice = slice(None)) -> NDArray[Any]:
        """Its actions on the same observations every time."""
        obs = sampled_obs(self.make_spaces().observation, self.envs, seed=3)
        obs = {name: column[rows] for name, column in obs.items()}
        begins = np.ones(len(next(iter(obs.values()))), np.bool_)
        return act_of(policy)(obs, explore=explore, begins=begins)

    def continued(self, policy: Policy, rows: int) -> NDArray[Any]:
        """Its greedy actions on the first rows of other observations, where no episode begins."""
        obs = sampled_obs(self.make_spaces().observation, self.envs, seed=4)
        obs = {name: column[:rows] for name, column in obs.items()}
        return act_of(policy)(obs, explore=False, begins=np.zeros(rows, np.bool_))

    def test_it_is_a_policy(self) -> None:
        policy = self.make_policy(self.envs, 0)
        missing = missing_members(policy, Policy)
        assert not missing, f"{type(policy).__name__} lacks {', '.join(missing)}"

    def test_every_action_is_one_of_its_space(self) -> None:
        space = self.make_spaces().action
        _, dtype, shape = action_field(space)
        policy = self.acting()
        for explore in (False, True, True, True):
            action = self.actions(policy, explore=explore)
            form = (action.shape, action.dtype)
            expected = ((self.envs, *shape), dtype)
            assert form == expected, f"actions are {form}, not {expected}"
            outside = [one for one in action if not space.contains(one.astype(space.dtype))]
            assert not outside, f"actions outside {space}: {outside[:3]}"

    def test_greedy_acting_is_deterministic(self) -> None:
        policy = self.acting(seed=0)
        first = self.actions(policy, explore=False)
        self.actions(policy, explore=True)
        again = self.actions(policy, explore=False)
        other = self.acting(seed=1)
        assert_same(again, first, "greedy actions after an exploring one")
        assert_same(self.actions(other, explore=False), first, "greedy actions of another seed")

    def test_a_rows_action_is_its_own(self) -> None:
        policy = self.acting()
        together = self.actions(policy, explore=False)
        for row in range(self.envs):
            alone = self.actions(policy, explore=False, rows=slice(row, row + 1))
            np.testing.assert_allclose(alone[0], together[row], rtol=1e-4, atol=1e-5)

    def test_an_episode_that_begins_is_acted_on_as_the_first(self) -> None:
        """A policy with memory forgets where `begins` is true, and there alone."""
        act = act_of(policy := self.acting())
        first = self.actions(policy, explore=False)
        other = sampled_obs(self.make_spaces().observation, self.envs, seed=4)
        none = np.zeros(self.envs, np.bool_)
        act(other, explore=False, begins=none)
        again = self.actions(policy, explore=False)
        assert_same(again, first, "greedy actions where every episode begins anew")

    def test_rows_that_are_left_out_come_back(self) -> None:
        """An evaluation leaves out its last rows once they have ended; the next has all again."""
        whole, shrinking = self.acting(), self.acting()
        first = self.actions(whole, explore=False)
        self.actions(shrinking, explore=False)
        together = self.continued(whole, self.envs)
        fewer = max(1, self.envs - 1)
        np.testing.assert_allclose(
            self.continued(shrinking, fewer),
            together[:fewer],
            rtol=1e-4,
            atol=1e-5,
            err_msg=f"greedy actions of the first {fewer} rows, without the others",
        )
        for _ in range(2):  # after a few rows less, and after one row alone
            again = self.actions(shrinking, explore=False)
            assert_same(again, first, "greedy actions of all rows, after fewer")
            self.continued(shrinking, 1)

    def test_it_fills_the_columns_that_its_agent_declares(self) -> None:
        policy = self.acting()
        self.actions(policy, explore=True)
        given = policy.acted_columns() if implements(policy, ColumnPolicy) else {}
        names = {column.name for column in self.columns}
        assert given.keys() == names, f"acted_columns() has {set(given)}, declared are {names}"
        for column in self.columns:
            expected = (self.envs, *column.shape)
            array = given[column.name]
            assert array.shape == expected, (
                f"column {column.name!r} has shape {array.shape}, {expected} is declared"
            )
            assert np.can_cast(array.dtype, column.numpy_dtype, "same_kind"), (
                f"column {column.name!r} is {array.dtype}, {column.dtype} is declared"
            )

    def test_the_same_seed_explores_the_same(self) -> None:
        one, other = self.acting(seed=4), self.acting(seed=4)
        for _ in range(5):
            acted, expected = self.actions(other, explore=True), self.actions(one, explore=True)
            assert_same(acted, expected, "exploring actions of two policies of one seed")

    def test_it_acts_on_the_newest_model(self) -> None:
        policy = self.acting(model_seed=0)
        policy.sync_model(self.make_model(1))
        fresh = self.acting(model_seed=1)
        acted, expected = self.actions(policy, explore=False), self.actions(fresh, explore=False)
        assert_same(acted, expected, "actions after sync_model, and of a policy that had no other")

    def test_a_models_arrays_are_not_written(self) -> None:
        model = self.make_model(0)
        for array in model.arrays.values():
            array.setflags(write=False)
        policy = self.make_policy(self.envs, 0)
        policy.sync_model(model)
        self.actions(policy, explore=True)

    def test_a_model_of_another_shape_is_refused(self) -> None:
        model = self.make_model(0)
        name = next(name for name, array in model.arrays.items() if array.ndim)
        wrong = np.zeros([size + 1 for size in model.arrays[name].shape], model.arrays[name].dtype)
        policy = self.make_policy(self.envs, 0)
        try:
            policy.sync_model(ModelInfo(1, {**model.arrays, name: wrong}))
        except ModelMismatchError as e:
            assert name in str(e), f"{e}: it does not name {name!r}"  # noqa: PT017 - no pytest here
        else:
            why = "vedette_rl.networks.check_arrays raises ModelMismatchError where it does not fit"
            raise AssertionError(f"a model with {name!r} of another shape was taken: {why}")


def assert_same(actual: NDArray[Any], expected: NDArray[Any], what: str) -> None:
    """Raise an AssertionError that shows both, unless they are equal."""
    np.testing.assert_array_equal(actual, expected, err_msg=what)


_NUMBER, _EPISODE, _T = 0, 1, 2  # what a ScriptedEnv's observation holds


class StepProcessorContract:
    """A mixin of tests; give it your processor.

    ::

        class TestMyProcessor(StepProcessorContract):
            def make_processor(self, envs: int, dtype: np.dtype) -> StepProcessor: ...

    Attributes:
        rows_per_step: what its class declares: transitions made of a step, on average.
        columns: those that it adds to transitions (its own ``columns``).
    """

    steps = 40
    rows_per_step = 1.0
    columns: Sequence[RowColumn] = ()

    def make_processor(self, envs: int, dtype: np.dtype[Any]) -> StepProcessor:
        """A new processor for `envs` environments and transitions of `dtype`."""
        raise NotImplementedError

    def make_envs(self) -> VectorEnvironment:
        """Three environments with every kind of end."""
        scripts: list[list[Any]] = [
            [(3, "terminated"), (4, "truncated"), (1, "both"), (9, "truncated")],
            [(1, "truncated"), (2, "terminated")],
            [(100, "terminated")],
        ]
        envs = [ScriptedEnv(number, script) for number, script in enumerate(scripts)]
        return LoopVectorEnv(envs, seed=0)

    def play(self) -> list[Columns]:
        """The transitions of each of some steps, and of the flush."""
        envs = self.make_envs()
        processor = self.prepared(envs)
        envs.reset()
        action = np.zeros(len(envs), np.int64)
        given = [processor.process(envs.step(action)) for _ in range(self.steps)]
        return [*given, processor.flush(), processor.flush()]

    def prepared(self, envs: VectorEnvironment) -> StepProcessor:
        """A new processor for these environments."""
        processor = self.make_processor(len(envs), transition_dtype(envs.spaces, self.columns))
        prepare_steps(processor, envs, seed=0)
        return processor

    def test_it_is_a_step_processor(self) -> None:
        processor = self.prepared(self.make_envs())
        missing = missing_members(processor, StepProcessor)
        assert not missing, f"{type(processor).__name__} lacks {', '.join(missing)}"

    def test_transitions_have_the_columns_agreed_on(self) -> None:
        dtype = transition_dtype(self.make_envs().spaces, self.columns)
        for columns in self.play():
            assert set(columns) == set(dtype.names or ()), (
                f"transitions have {sorted(columns)}, agreed on are {sorted(dtype.names or ())}"
            )
            rows = {name: len(column) for name, column in columns.items()}
            assert len(set(rows.values())) == 1, f"columns of different lengths: {rows}"
            for name, column in columns.items():
                form = (column.dtype, column.shape[1:])
                agreed = dtype[name]
                assert form == (agreed.base, agreed.shape), (
                    f"column {name!r} is {form}, agreed on is {(agreed.base, agreed.shape)}"
                )

    def test_transitions_belong_to_the_caller(self) -> None:
        envs = self.make_envs()
        processor = self.prepared(envs)
        envs.reset()
        kept: list[tuple[Columns, Columns]] = []
        for _ in range(self.steps):
            columns = processor.process(envs.step(np.zeros(len(envs), np.int64)))
            kept.append((columns, {name: column.copy() for name, column in columns.items()}))
        for columns, copies in kept:
            for name, column in columns.items():
                np.testing.assert_array_equal(column, copies[name])

    def test_no_transition_reaches_into_another_episode(self) -> None:
        for columns in self.play():
            before, after = columns["obs"], columns["next_obs"]
            np.testing.assert_array_equal(before[:, _NUMBER], after[:, _NUMBER])
            np.testing.assert_array_equal(before[:, _EPISODE], after[:, _EPISODE])
            np.testing.assert_array_equal(after[:, _T] - before[:, _T], columns["n_steps"])

    def test_every_step_begins_as_many_transitions_as_it_declares(self) -> None:
        begun = np.concatenate([columns["obs"] for columns in self.play()])
        expected = 3 * self.steps * self.rows_per_step
        assert abs(len(begun) - expected) <= 0.1 * expected * (self.rows_per_step != 1), (
            f"{3 * self.steps} steps made {len(begun)} transitions; rows_per_step = "
            f"{self.rows_per_step:g} makes {expected:g}"
        )
        if self.rows_per_step == 1:
            assert len(np.unique(begun, axis=0)) == len(begun), "a step is in two transitions"

    def test_ends_stand_on_what_reaches_them(self) -> None:
        given = self.play()
        ended = {
            name: np.concatenate([columns[name] for columns in given])
            for name in ("next_obs", "terminated", "truncated")
        }
        first = (ended["next_obs"][:, _NUMBER] == 0) & (ended["next_obs"][:, _EPISODE] <= 2)
        for episode, (length, flags) in enumerate([(3, "t"), (4, "u"), (1, "tu")]):
            in_episode = first & (ended["next_obs"][:, _EPISODE] == episode)
            at_end = in_episode & (ended["next_obs"][:, _T] == length)
            np.testing.assert_array_equal(
                ended["terminated"][in_episode], at_end[in_episode] & ("t" in flags)
            )
            np.testing.assert_array_equal(
                ended["truncated"][in_episode], at_end[in_episode] & ("u" in flags)
            )

    def test_a_flush_leaves_nothing(self) -> None:
        left = len(self.play()[-1]["reward"])
        assert left == 0, f"a second flush gives {left} transitions"


Insert = Callable[[Columns], None]

NUMBERED = row_dtype([("number", np.dtype(np.int64), ()), ("pair", np.dtype(np.float32), (2,))])
"""A envs that holds its own number, twice."""


def numbered(begin: int, end: int) -> Columns:
    """Rows `begin` to `end` of `NUMBERED`."""
    numbers = np.arange(begin, end)
    return {"number": numbers, "pair": np.stack([numbers, -numbers], 1).astype(np.float32)}


class ReplayBufferContract:
    """A mixin of tests; give it your buffer, which `replay.name` names::

        class TestMyReplay(ReplayBufferContract):
            replay = MyReplay

    It holds rows of `NUMBERED`. One that is made otherwise gives `make_replay` instead.

    Attributes:
        replay: makes a buffer of rows, a generator and a `ReplayConfig`.
        config: the latter.
    """

    capacity = 64
    replay: type[Any] | None = None
    config = ReplayConfig()

    def make_replay(self, capacity: int) -> tuple[ReplayBuffer, Insert]:
        """A new buffer, and what makes rows drawable from it."""
        assert self.replay is not None, "the contract needs `replay`, or `make_replay`"
        rows = MemoryRing(NUMBERED, capacity)

        def insert(columns: Columns) -> None:
            rows.append(columns, len(columns["number"]))
            rows.commit()

        return self.replay(rows, np.random.default_rng(0), self.config), insert

    def filled(self, rows: int) -> ReplayBuffer:
        """A buffer into which `rows` rows went, a few at a time."""
        replay, insert = self.make_replay(self.capacity)
        for begin in range(0, rows, 10):
            insert(numbered(begin, min(begin + 10, rows)))
        return replay

    def test_it_is_a_replay_buffer(self) -> None:
        replay = self.make_replay(self.capacity)[0]
        missing = missing_members(replay, ReplayBuffer)
        assert not missing, f"{type(replay).__name__} lacks {', '.join(missing)}"

    def test_nothing_can_be_drawn_from_an_empty_one(self) -> None:
        replay, _ = self.make_replay(self.capacity)
        assert (len(replay), replay.inserted) == (0, 0)
        try:
            replay.sample(1)
        except EmptyReplayError:
            return
        raise AssertionError("an empty replay gave a sample")

    def test_it_counts_what_was_inserted_and_what_it_holds(self) -> None:
        assert (len(self.filled(25)), self.filled(25).inserted) == (25, 25)
        replay = self.filled(3 * self.capacity)
        assert replay.inserted == 3 * self.capacity
        assert 0 < len(replay) <= self.capacity

    def test_a_sample_holds_the_rows_that_its_indices_name(self) -> None:
        for rows in (1, 25, self.capacity, 3 * self.capacity + 7):
            replay = self.filled(rows)
            for _ in range(5):
                sample = replay.sample(32)
                check_sample(type(replay).__name__, sample, 32)
                numbers = sample.columns["number"]
                np.testing.assert_array_equal(numbers, sample.indices)
                np.testing.assert_array_equal(sample.columns["pair"][:, 0], numbers)
                np.testing.assert_array_equal(sample.columns["pair"][:, 1], -numbers)
                assert numbers.min() >= replay.inserted - len(replay)
                assert numbers.max() < replay.inserted

    def test_every_row_can_be_drawn(self) -> None:
        replay = self.filled(2 * self.capacity)
        drawn = {int(i) for _ in range(100) for i in replay.sample(64).indices}
        assert drawn == set(range(replay.inserted - len(replay), replay.inserted))

    def test_weights_are_none_or_up_to_one(self) -> None:
        weights = self.filled(50).sample(32).weights
        if weights is not None:
            assert weights.shape == (32,)
            assert weights.dtype == np.float32
            assert ((weights > 0) & (weights <= 1)).all()

    def test_a_saved_state_draws_on_as_if_nothing_had_happened(self) -> None:
        one, other = self.filled(50), self.filled(50)
        one.sample(32)
        with tempfile.TemporaryDirectory() as folder:
            write_state(Path(folder) / "state", {"replay": one.get_state()}, {})
            other.set_state(read_state(Path(folder) / "state")[0]["replay"])
        for _ in range(3):
            expected = one.sample(32).indices.copy()
            assert_same(other.sample(32).indices, expected, "rows drawn after set_state")

    def test_priorities_may_be_told_of_any_row_drawn_before(self) -> None:
        replay, insert = self.make_replay(self.capacity)
        insert(numbered(0, 30))
        indices = replay.sample(32).indices.copy()
        insert(numbered(30, 60))
        insert(numbered(60, 90))
        insert(numbered(90, 120))
        replay.update_priority(indices, np.full(32, 1000.0, np.float32))  # overwritten by now
        sample = replay.sample(64)
        assert sample.indices.min() >= replay.inserted - len(replay)


def assert_same_model(one: Agent, other: Agent, what: str) -> None:
    """Raise an AssertionError that names the first array, unless actors would get the same."""
    arrays = one.model_info().arrays
    others = other.model_info().arrays
    for name, array in arrays.items():
        if not np.array_equal(array, others[name]):
            most = float(np.abs(array - others[name]).max())
            raise AssertionError(f"{what}: model array {name!r} differs by up to {most:g}")


def same_state(one: Agent, other: Agent) -> bool:
    """True if both have the same state."""
    return _flat(one.get_state()) == _flat(other.get_state())


def state_numbers(agent: Agent) -> NDArray[np.float64]:
    """Every number of an agent's state in a row: weights, the optimizer's moments, counters."""
    return np.concatenate([*_numbers(agent.get_state())])


def _numbers(node: object) -> Iterator[NDArray[np.float64]]:
    if isinstance(node, dict):
        for inner in node.values():
            yield from _numbers(inner)
    elif isinstance(node, (list, tuple)):
        for inner in node:
            yield from _numbers(inner)
    elif node is not None and not isinstance(node, (str, bytes)):
        detach = getattr(node, "detach", None)  # a tensor's: torch need not be imported to ask
        yield np.asarray(node if detach is None else detach(), np.float64).ravel()


def _flat(node: object) -> object:
    if isinstance(node, dict):
        return [(key, _flat(inner)) for key, inner in node.items()]
    if isinstance(node, (list, tuple)):
        return [_flat(inner) for inner in node]
    tolist = getattr(node, "tolist", None)
    return node if tolist is None else tolist()
