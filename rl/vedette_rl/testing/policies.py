"""The contract of policies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import ModelInfo, Policy
from vedette_rl.envs.spaces import Spaces, action_field
from vedette_rl.errors import ModelMismatchError
from vedette_rl.testing.transitions import sampled_obs


class PolicyContract:
    """A mixin of tests; give it your policy.

    ::

        class TestMyPolicy(PolicyContract):
            def make_spaces(self) -> Spaces: ...
            def make_policy(self, envs: int, seed: int) -> Policy: ...
            def make_model(self, seed: int) -> ModelInfo: ...
    """

    envs = 5

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
        return policy.act({name: column[rows] for name, column in obs.items()}, explore=explore)

    def test_it_is_a_policy(self) -> None:
        assert isinstance(self.make_policy(self.envs, 0), Policy)

    def test_every_action_is_one_of_its_space(self) -> None:
        space = self.make_spaces().action
        _, dtype, shape = action_field(space)
        policy = self.acting()
        for explore in (False, True, True, True):
            action = self.actions(policy, explore=explore)
            assert action.shape == (self.envs, *shape)
            assert action.dtype == dtype
            assert all(space.contains(one.astype(space.dtype)) for one in action)

    def test_greedy_acting_is_deterministic(self) -> None:
        policy = self.acting(seed=0)
        first = self.actions(policy, explore=False)
        self.actions(policy, explore=True)
        np.testing.assert_array_equal(self.actions(policy, explore=False), first)
        np.testing.assert_array_equal(self.actions(self.acting(seed=1), explore=False), first)

    def test_a_rows_action_is_its_own(self) -> None:
        policy = self.acting()
        together = self.actions(policy, explore=False)
        for row in range(self.envs):
            alone = self.actions(policy, explore=False, rows=slice(row, row + 1))
            np.testing.assert_allclose(alone[0], together[row], rtol=1e-4, atol=1e-5)

    def test_the_same_seed_explores_the_same(self) -> None:
        one, other = self.acting(seed=4), self.acting(seed=4)
        for _ in range(5):
            np.testing.assert_array_equal(
                self.actions(one, explore=True), self.actions(other, explore=True)
            )

    def test_it_acts_on_the_newest_model(self) -> None:
        policy = self.acting(model_seed=0)
        policy.sync_model(self.make_model(1))
        fresh = self.acting(model_seed=1)
        np.testing.assert_array_equal(
            self.actions(policy, explore=False), self.actions(fresh, explore=False)
        )

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
            assert name in str(e)  # noqa: PT017 - this kit does without pytest
        else:
            raise AssertionError(f"a model with {name!r} of another shape was taken")
