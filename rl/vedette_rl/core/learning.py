"""The interfaces that the trainer drives: agents, replay buffers and recorders.

The trainer's loop, in the order of its calls::

    agent = agent_kind("dqn").build_agent(config, spaces, device=device, seed=seed)
    agent.set_state(checkpoint)                       # only when a run resumes
    publish(agent.model_info())
    while not stopped:
        sample = replay.sample(batch_size)
        batch, weights = load(sample)                 # tensors on the agent's device
        result = agent.opt(batch, weights, record=due(record_agent_info_interval))
        replay.update_priority(sample.indices, result.td_errors)
        if due(sync_interval): publish(agent.model_info())
        if due(save_interval): save(agent.get_state())
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core.columns import Columns
from vedette_rl.core.nested_arrays import nest_arrays
from vedette_rl.errors import CustomPartError

if TYPE_CHECKING:  # the contracts are read by processes that never load torch
    import torch

State = dict[str, Any]
"""A state to save, a dict of dicts: leaves are tensors, arrays, numbers, strings, bools or None."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The arrays that an actor needs to act, and no more: upstream's ``(n_opts, ModelInfo)``.

    Args:
        version: optimization steps behind the arrays.
        arrays: named arrays, contiguous, owned by the receiver: never a view of live weights.
    """

    version: int
    arrays: Mapping[str, NDArray[Any]]

    def nested(self) -> dict[str, Any]:
        """Return the arrays in nested dictionaries, as a custom training loop published them:
        ``params/dense/kernel`` is ``["params"]["dense"]["kernel"]``."""
        return nest_arrays(self.arrays)


@dataclass(frozen=True, slots=True)
class OptResult:
    """The result of one optimization step.

    Args:
        td_errors: absolute TD error of each sample ``(B,)`` for prioritized replay; None where an
            agent has none.
        record: scalars by name (``loss``, ``q_mean``, ...); empty unless the step was asked to
            record, because reading a scalar off a GPU waits for it.
    """

    td_errors: torch.Tensor | None = None
    record: Mapping[str, float] = field(default_factory=dict)


class StaticBatch(dict[str, "torch.Tensor"]):
    """A batch in tensors that stay where they are: a captured step reads them there, and they may
    be written over by another batch."""


@dataclass(frozen=True, slots=True)
class MinibatchPlace:
    """The place of a minibatch among those of its block (`replay.kind` queue).

    Args:
        pass_number: from 0; all rows of the block are in one minibatch of each pass.
        passes: over a block.
        minibatch: from 0, within its pass.
        minibatches: of a pass.
    """

    pass_number: int = 0
    passes: int = 1
    minibatch: int = 0
    minibatches: int = 1

    @property
    def begins_block(self) -> bool:
        """True of a block's first minibatch."""
        return self.minibatch == 0 and self.pass_number == 0

    @property
    def begins_pass(self) -> bool:
        """True of a pass's first minibatch."""
        return self.minibatch == 0

    @property
    def ends_block(self) -> bool:
        """True of a block's last minibatch."""
        return self.minibatch == self.minibatches - 1 and self.pass_number == self.passes - 1


class BlockBatch(StaticBatch):
    """A block of runs ``(K, T, ...)`` in tensors that stay where they are, of which ``chosen``
    ``(B,)`` int64, places of its rows ``k T + t``, are the minibatch that is learned from. Where an
    agent learns from sequences (`AgentConfig.learns_sequences`) these are whole runs, the T rows of
    each in their order; of columns declared `first` a block has the first row's value alone,
    ``(K, ...)``.

    Attributes:
        place: of that minibatch, for decisions that no captured step makes.
    """

    place = MinibatchPlace()


class SequenceAgent(Protocol):
    """An `Agent` that is told once, before its first step, how long its burn-in can be."""

    def expect_burn_in(self, rows: int) -> None:
        """Take sequences whose burn-in is `rows` at most (`replay.burn_in`): all batches have
        ``L = rows + T`` steps."""
        ...


class Agent(Protocol):
    """Learns from batches. The module's docstring shows the loop that calls it."""

    @property
    def opt_steps(self) -> int:
        """Optimization steps done, over all epochs of the run."""
        ...

    def opt(
        self,
        batch: Mapping[str, torch.Tensor],
        weights: torch.Tensor | None = None,
        *,
        record: bool = False,
    ) -> OptResult:
        """One optimization step.

        Args:
            batch: a column each ``(B, *shape)`` on the agent's device: ``obs``, ``action``,
                ``reward``, ``next_obs``, ``terminated``, ``truncated``, ``n_steps``. Of sequences
                ``(B, L, *shape)``, as `vedette_rl.replay.drawn_sequences` has them. Owned by the
                caller and overwritten after the call.
            weights: importance-sampling weights ``(B,)``; None means all 1.
            record: also fill `OptResult.record`.
        """
        ...

    def model_info(self) -> ModelInfo:
        """A copy of what actors need, with its version. The names and shapes never change."""
        ...

    def get_state(self) -> State:
        """All that resume needs: weights, targets, optimizer, counters, random states. Copies.

        Arrays and tensors are finite; where one is not, learning has diverged.
        """
        ...

    def set_state(self, state: State) -> None:
        """Continue from `state`: the next steps are the same as if nothing had happened."""
        ...


Record = Mapping[str, float]
"""Scalars by name."""


class Total(float):
    """A scalar that adds up, such as a count since the start: of those that are stored between two
    flushes a recorder writes the last, and not the mean."""

    __slots__ = ()


class Recorder(Protocol):
    """A sink of records. `step` is env steps for curves of returns, optimization steps for losses.

    ::

        recorder.write({"rollout/ep_rew_mean": 21.0}, step=env_steps)
        recorder.store({"train/loss": 0.1})        # aggregated until ...
        recorder.flush(step=opt_steps)             # ... the mean of what was stored is written
        recorder.close()
    """

    def write(self, record: Record, step: int) -> None:
        """Write scalars now."""
        ...

    def store(self, record: Record) -> None:
        """Keep scalars until the next flush, which writes the mean of each name; of a `Total` the
        last value."""
        ...

    def flush(self, step: int) -> None:
        """Write what was stored, and push everything written so far out to the disk."""
        ...

    def write_text(self, name: str, text: str) -> None:
        """Write a text (the configuration, a note)."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows drawn from the replay: columns by name, as a mapping has them.

    ::

        batch["obs"]                # a column
        "source" in batch           # of a run with `replay.sources`
        columns = dict(batch)       # the same arrays, by name

    Args:
        columns: ``(B, *shape)`` each, owned by the buffer and overwritten by the next call.
        indices: ``(B,)`` int64, the rows' numbers since the run began (not places in the ring).
        weights: importance-sampling weights ``(B,)`` float32; None means all 1 (uniform).
    """

    columns: Columns
    indices: NDArray[Any]
    weights: NDArray[Any] | None = None

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column."""
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        """Return True if there is a column of this name."""
        return name in self.columns

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the columns."""
        return iter(self.columns)

    def keys(self) -> KeysView[str]:
        """Return the names of the columns."""
        return self.columns.keys()


class ReplayBuffer(Protocol):
    """Gives samples; rows are inserted through another interface.

    A custom one (`replay.name`) is made as ``Name(rows, rng, config)``: `rows` are the stored
    columns, which another process appends to (`vedette_rl.replay.rows.Rows`), `rng` draws, `config`
    is the replay's. `vedette_rl.replay.uniform.DrawnRows` is a base with all but `sample`. What
    ``stats() -> dict[str, float]`` returns, where there is one, is recorded as ``sampling/NAME``.
    ``look() -> int``, where there is one, has the next sample see the rows that are there now, and
    none that are inserted while it is drawn; it returns `inserted` as that sample sees it.
    ``wait_reason() -> str``, where there is one, says why nothing can be drawn from what it looked
    at last, although there are rows; "" where something can.
    """

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


def look_at(replay: ReplayBuffer) -> int:
    """Have the next sample see the rows that are there now; returns `inserted` as it sees it.

    A replay that has no `look` sees the rows that are there when it asks.
    """
    look: Callable[[], int] | None = getattr(replay, "look", None)
    return replay.inserted if look is None else look()


def draw_wait_reason(replay: ReplayBuffer) -> str:
    """Return why nothing can be drawn from the last look although there are rows; "" if it can."""
    wait_reason: Callable[[], str] | None = getattr(replay, "wait_reason", None)
    return "" if wait_reason is None else wait_reason()


# Results of custom parts, checked at the first call alone: the check takes itself away


def check_first_opt(name: str, agent: Agent) -> None:
    """Have the first optimization step of agent `name` checked.

    That step raises:
        CustomPartError: it returns no `OptResult`, TD errors that are not one for each sample, or
            does not count.
    """

    def checked(opt: Callable[..., OptResult], *args: Any, **kwargs: Any) -> OptResult:
        before = agent.opt_steps
        result = opt(*args, **kwargs)
        if not (hasattr(result, "td_errors") and hasattr(result, "record")):
            raise CustomPartError(
                "agent.name", name, "opt", describe_returned(result), "an OptResult"
            )
        if result.td_errors is not None and result.td_errors.ndim != 1:
            returned = f"td_errors of shape {tuple(result.td_errors.shape)}"
            raise CustomPartError("agent.name", name, "opt", returned, "one for each sample, (B,)")
        if agent.opt_steps <= before:
            returned = f"with opt_steps at {agent.opt_steps}, which was {before} before"
            expected = "an agent that counts: opt adds 1 to opt_steps"
            raise CustomPartError("agent.name", name, "opt", returned, expected)
        return result

    _check_first_call(agent, "opt", checked)


def check_first_model_info(name: str, agent: Agent) -> None:
    """Have the first model of agent `name` checked; that call raises as `check_model_info`."""

    def checked(model_info: Callable[[], Any]) -> ModelInfo:
        return check_model_info(name, model_info())

    _check_first_call(agent, "model_info", checked)


def check_model_info(name: str, info: Any) -> ModelInfo:  # whatever it returned
    """Return what the `model_info` of agent `name` returned.

    Raises:
        CustomPartError: it is no `ModelInfo` with named arrays of numpy.
    """
    if not isinstance(info, ModelInfo) or not isinstance(info.arrays, Mapping):
        expected = "vedette_rl.core.ModelInfo(opt_steps, arrays)"
        raise CustomPartError("agent.name", name, "model_info", describe_returned(info), expected)
    arrays: Mapping[str, Any] = info.arrays
    for key, array in arrays.items():
        if not isinstance(array, (np.ndarray, np.generic)):
            found = f"arrays in which {key!r} is {describe_returned(array)}"
            is_tensor = hasattr(array, "detach")
            convert = "tensor.detach().cpu().numpy().copy()" if is_tensor else "np.array(value)"
            expected = f"arrays of numpy, {convert}"
            raise CustomPartError("agent.name", name, "model_info", found, expected)
    return info


def restore_agent(name: str, agent: Agent, state: State, opt_steps: int) -> None:
    """Give agent `name` a state that was saved after this many optimization steps.

    Raises:
        CustomPartError: it does not count on from there.
    """
    agent.set_state(state)
    if agent.opt_steps != opt_steps:
        found = f"with opt_steps at {agent.opt_steps}, and the state is of step {opt_steps:,}"
        expected = "an agent that counts on: get_state saves opt_steps, and set_state restores it"
        raise CustomPartError("agent.name", name, "set_state", found, expected)


def check_first_sample(name: str, replay: ReplayBuffer) -> None:
    """Have the first draw of replay `name` checked; that raises as `check_sample`."""

    def checked(sample: Callable[[int], Sample], batch_size: int) -> Sample:
        drawn = sample(batch_size)
        check_sample(name, drawn, batch_size)
        return drawn

    _check_first_call(replay, "sample", checked)


def check_sample(name: str, drawn: Sample, batch_size: int) -> None:
    """Check a sample of replay `name`.

    Raises:
        CustomPartError: it is no `Sample`, or not of `batch_size` rows.
    """
    if not all(hasattr(drawn, part) for part in ("columns", "indices", "weights")):
        expected = "vedette_rl.core.Sample(columns, indices)"
        raise CustomPartError("replay.name", name, "sample", describe_returned(drawn), expected)
    arrays = {**drawn.columns, "indices": drawn.indices}
    if drawn.weights is not None:
        arrays["weights"] = drawn.weights
    for part, array in arrays.items():
        if np.shape(array)[:1] != (batch_size,):
            returned = f"{part!r} of shape {np.shape(array)}"
            raise CustomPartError("replay.name", name, "sample", returned, f"{batch_size} rows")


def _check_first_call(part: Any, method: str, checked: Callable[..., Any]) -> None:
    """Have ``checked(call, ...)`` in place of the first call of a method, where the object can hold
    one of its own."""
    if not hasattr(part, "__dict__"):
        return
    instance_method = vars(part).get(method)
    call = getattr(part, method)

    def first(*args: Any, **kwargs: Any) -> Any:
        if instance_method is None:
            delattr(part, method)
        else:
            setattr(part, method, instance_method)
        return checked(call, *args, **kwargs)

    setattr(part, method, first)


def describe_returned(value: object) -> str:
    """Describe a value that a custom part returned, in a few words."""
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None:
        return f"a {type(value).__name__}"
    shown = np.array2string(np.asarray(value), threshold=8) if isinstance(value, np.ndarray) else ""
    return f"{dtype}{[*shape]} {shown}".strip()
