"""The errors of this package. Each error composes its own message.

::

    RlError
    ├── InputError                 what the user named or configured cannot be used here
    │   ├── UnsupportedSpaceError      an agent does not take this space
    │   ├── TooManyCategoriesError     or it has too many categories
    │   ├── NoImageError               a network for images, and no image
    │   ├── UnknownEnvironmentError    no environment of this name can be made
    │   ├── UnknownAgentError          no agent has this name
    │   ├── UnknownNameError           nothing of this name can be imported
    │   ├── CustomNetworkError         a network that does not fit
    │   ├── VideoError                 no video; CannotRenderError: an environment without pictures
    │   ├── TakeoverError              a person cannot act in an environment
    │   └── ExportError                a policy or a replay has no such form
    ├── WrongSettingsError         settings that were made in Python, a line each
    ├── SpaceLayoutError, DeclaredSpaceError, EnvironmentFaultError     an environment
    ├── ImportNotAllowedError      a module that this host does not import for others
    ├── RowColumnError, CustomPartError, HindsightError     rows, and what makes them
    ├── ModelMismatchError, NestedArraysError, PolicyFileError, CheckpointError     weights
    │   └── CheckpointFormatError
    ├── DivergedError              weights that are not finite, or do not move any more
    ├── DataSetError               recorded data
    ├── ReplayFormatError          a replay on disk that is another than asked for
    │   └── ReplayTornError            or whose file is damaged
    ├── ReplayRowsLostError        a replay on disk whose last rows are lost while it is in use
    ├── ReplayBudgetError, ReplayOverrunError, EmptyReplayError     a replay's size
    ├── QueueOverrunError          a queue's rows are overwritten too early
    ├── LatestValueFormatError, MapSpaceError, OneWriterError     maps and files of processes
    ├── RecordingError             a record cannot be written
    ├── EvaluationCancelledError   an evaluation is not needed any more
    └── RankLostError              a rank cannot train on with the others
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class RlError(Exception):
    """The base of all errors that `vedette_rl` raises.

    Args:
        sentence: all of the error, as it is shown alone.
        key: the key of the configuration that a line of a start begins with; "": the sentence names
            it, or there is none.
        fix: the end of that line, the fix; "": the sentence says it.
    """

    def __init__(self, sentence: str, *, key: str = "", fix: str = "") -> None:
        super().__init__(sentence)
        self.key = key
        self.fix = fix

    @property
    def problem(self) -> str:
        """The part of the sentence between the key and the fix."""
        return str(self)


class DivergedError(RlError):
    """Learning has diverged: weights are not finite, or no gradient is.

    Args:
        what: is not finite.
        opt_steps: optimization steps until then.
        advice: what became of it, and what helps.
    """

    def __init__(self, what: str, opt_steps: int, advice: str = "Nothing of it is saved") -> None:
        super().__init__(
            f"learning diverged: {what} after optimization step {opt_steps:,}. {advice}"
        )
        self.what = what
        self.opt_steps = opt_steps


class InputError(RlError):
    """A name or setting of the user cannot be used here: a command ends as misused."""


class WrongSetting(NamedTuple):
    """A key of the configuration that is wrong, why, and the fix; "" where `why` says it."""

    key: str
    why: str
    fix: str = ""


class WrongSettingsError(RlError, ValueError):
    """A part of the configuration was made in Python with wrong settings; a line for each."""

    def __init__(self, wrong: Iterable[WrongSetting]) -> None:
        self.wrong = tuple(wrong)
        lines = (f"{key}: {why}" + (f"; {fix}" if fix else "") for key, why, fix in self.wrong)
        super().__init__("\n".join(lines))


class UnsupportedSpaceError(InputError):
    """An agent cannot take this observation or action space."""

    def __init__(self, agent: str, part: str, space: object, takes: str) -> None:
        super().__init__(
            f"agent {agent!r} takes {takes} {part} spaces, not {space}",
            key="agent.name",
            fix="choose another agent or environment",
        )
        self.agent = agent
        self.part = part
        self.space = space


class TooManyCategoriesError(InputError):
    """Categories of an observation, or of an action, need more numbers in a network than it has.

    Args:
        what: the column, or the action.
        space: its space.
        count: the numbers that its categories need, together with those of other columns.
        most: the most that there may be.
    """

    def __init__(self, agent: str, what: str, space: object, count: int, most: int) -> None:
        named = " ".join(str(space).split())  # numpy breaks lines of long arrays
        super().__init__(
            f"agent {agent!r} needs a number for each category: with {what}, {named}, they are "
            f"{count:,}, and {most:,} at most",
            key="agent.name",
            fix="have fewer categories, or a Box, by a wrapper in env.wrappers",
        )
        self.space = space


class RankLostError(RlError):
    """A rank cannot train on with the others."""

    def __init__(self, number: int, count: int, why: str) -> None:
        super().__init__(f"rank {number} of {count} cannot train on with the others: {why}")
        self.number = number
        self.count = count
        self.why = why


class NoImageError(InputError):
    """``cnn`` is asked of an observation that has no image, or one too small for it."""

    def __init__(self, space: object, convolutions: str) -> None:
        least = "of at least 8 pixels a side (36 without channels)"
        if convolutions != "auto":
            least = f"large enough for agent.convolutions={convolutions}"
        super().__init__(
            f"'cnn' takes uint8 images {least}, or stacks of such, not {space}",
            key="agent.network",
            fix="set agent.network=auto, or make it one by env.wrappers",
        )
        self.space = space


class UnknownEnvironmentError(InputError):
    """No environment of this name can be made here."""

    def __init__(self, env_id: str, why: str) -> None:
        super().__init__(f"cannot make environment {env_id!r}: {why}")
        self.env_id = env_id


class SpaceLayoutError(RlError, ValueError):
    """A space cannot be laid out in columns, or a value is none of its space.

    Args:
        element: the place of the value's first element that is wrong; None: all of it is.
    """

    def __init__(
        self, part: str, space: object, why: str, element: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(f"{part} space {space}: {why}")
        self.part = part
        self.space = space
        self.element = element


class DeclaredSpaceError(RlError):
    """An environment has another space than the configuration declares."""

    def __init__(self, part: str, declared: object, found: object) -> None:
        super().__init__(
            f"env.{part} declares {declared}, and the environment here has {found}",
            key=f"env.{part}",
            fix="declare what the environment has",
        )
        self.part = part
        self.declared = declared
        self.found = found


class ImportNotAllowedError(RlError):
    """A configuration names a module that this host does not import for others."""

    def __init__(self, module: str, wanted_by: str) -> None:
        super().__init__(
            f"{wanted_by!r} imports {module!r}, which is not allowed here: "
            f"add --allow-import {module.partition('.')[0]}"
        )
        self.module = module


class EnvironmentFaultError(RlError):
    """An environment breaks a rule that transitions depend on."""

    def __init__(self, env: str, fault: str) -> None:
        super().__init__(f"environment {env}: {fault}")
        self.env = env
        self.fault = fault


class EvaluationCancelledError(RlError):
    """An evaluation that is being played is not needed any more."""

    def __init__(self, version: int, ended: int, episodes: int) -> None:
        super().__init__(
            f"the evaluation of version {version:,} is given up: {ended} of {episodes} episodes "
            "had ended"
        )
        self.version = version
        self.ended = ended
        self.episodes = episodes


class UnknownAgentError(InputError):
    """No agent of this name is known."""

    def __init__(self, name: str, known: list[str], why: str = "") -> None:
        message = f": {why}" if why else ""
        super().__init__(
            f"unknown agent {name!r}{message}; known: {', '.join(known)}, "
            "or module:Name of your own"
        )
        self.name = name


class UnknownNameError(InputError):
    """A configuration names something that cannot be imported here, or is of another kind.

    Args:
        key: the key that names it, with which the sentence begins.
    """

    def __init__(self, key: str, name: str, why: str) -> None:
        super().__init__(f"{key} is {name!r}: {why}")
        self.named_by = key
        self.name = name
        self.why = why


class CustomNetworkError(InputError):
    """A custom network does not fit the agent or the environment."""

    def __init__(self, name: str, why: str, key: str = "agent.network") -> None:
        super().__init__(f"{key} is {name!r}: {why}")
        self.name = name


class RowColumnError(RlError):
    """A column of transitions is not what an agent or step processor declares."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"column {name!r}: {why}")
        self.name = name
        self.why = why


class CustomPartError(RlError):
    """A custom part returns what its interface does not say.

    Args:
        key, name: the key of the configuration, and what it names.
        method: the method that was called.
        found, expected: the returned value in words, and the expected one.
    """

    def __init__(self, key: str, name: str, method: str, found: str, expected: str) -> None:
        super().__init__(f"{key} is {name!r}: its {method}() returned {found}; return {expected}")
        self.named_by = key
        self.name = name
        self.method = method


class HindsightError(RlError):
    """Hindsight cannot relabel the transitions of this environment."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(f"actors.step_processor 'her': {why}: set {fix}")
        self.why = why


class RecordingError(RlError):
    """A record cannot be written."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"cannot record to {path}: {why}")
        self.path = path


class VideoError(InputError):
    """An episode cannot be made a video."""


class CannotRenderError(VideoError):
    """An environment shows no pictures."""

    def __init__(self, env_id: str, why: str) -> None:
        super().__init__(
            f"environment {env_id!r} cannot render: {why}; let its constructor take render_mode, "
            "its metadata['render_modes'] name 'rgb_array', and its render() give pictures "
            "(height, width, 3)"
        )
        self.env_id = env_id


class TakeoverError(InputError):
    """A person cannot act in an environment."""

    def __init__(self, env_id: str, why: str, fix: str) -> None:
        super().__init__(f"environment {env_id!r} by a person: {why}; {fix}")
        self.env_id = env_id
        self.why = why


def other_format(found: object, ours: int) -> str:
    """Describe the format of a file that this release does not read, with the fix.

    Args:
        found: what the file says that its format is.
        ours: the format that this release reads.
    """
    if type(found) is int and found > ours:
        return (
            f"made by a newer version of vedette (its format is {found}, and {ours} is read here): "
            "install that version"
        )
    if type(found) is int:
        return (
            f"made by an older version of vedette (its format is {found}, and {ours} is read here):"
            " take that version for it"
        )
    return f"its format is {found!r}, and {ours} is read here"


class CheckpointError(RlError):
    """A state cannot be written or read."""

    def __init__(self, path: Path, what: str, why: str) -> None:
        super().__init__(f"cannot {what} checkpoint {path}: {why}")
        self.path = path
        self.why = why


class CheckpointFormatError(CheckpointError):
    """A checkpoint is whole, and of a format that is not read here: no older one takes its place.

    Args:
        found: the format that it names.
    """

    def __init__(self, path: Path, found: object, ours: int) -> None:
        super().__init__(path, "read", other_format(found, ours))


class PolicyFileError(RlError):
    """A file holds no policy that can be read."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"cannot read policy {path}: {why}")
        self.path = path


class ExportError(InputError):
    """A policy or a replay cannot be exported in a form."""

    def __init__(self, form: str, why: str) -> None:
        super().__init__(f"--format {form}: {why}")


class DataSetError(RlError):
    """A data set cannot be read or written, or does not fit the environment.

    Args:
        name: the data set's name, as the user gave it.
        why: the problem.
        fix: the remedy.
    """

    def __init__(self, name: str, why: str, fix: str) -> None:
        super().__init__(f"data set {name}: {why}: {fix}", fix=fix)
        self.name = name
        self.why = why

    @property
    def problem(self) -> str:
        """The part of the sentence between the key of a source and the fix."""
        return f"{self.name}: {self.why}"


class EmptyReplayError(RlError):
    """A sample was asked of a replay that holds nothing."""

    def __init__(self) -> None:
        super().__init__("the replay is empty: wait for the warm-up before sampling")


class NoSequenceError(EmptyReplayError):
    """A sequence was asked of a replay in which none is whole."""

    def __init__(self, steps: int) -> None:
        RlError.__init__(
            self,
            f"no sample of the replay begins a whole sequence of {steps} steps (replay.sequence): "
            "wait for more samples before drawing",
        )


BEGIN_EMPTY = "begin an empty replay with --new-replay"
"""The fix for a replay that cannot be used: weights and counts of its run go on."""


class ReplayFormatError(RlError):
    """A replay on disk is torn, foreign, or of another format than asked for."""


class ReplayTornError(ReplayFormatError):
    """A file of a replay is missing, cut short, damaged, or another replay's.

    Args:
        path: the file, in the replay's directory.
        why: the damage.
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"the replay's file {path} {why}: put a whole one back, or {BEGIN_EMPTY}")
        self.path = path
        self.why = why


class ReplayRowsLostError(RlError):
    """The last rows of a replay are lost, and it cannot be recovered beneath its readers.

    Args:
        directory: the replay's.
        why: what was found.
    """

    def __init__(self, directory: Path, why: str) -> None:
        super().__init__(
            f"the replay in {directory} is in use: {why}: check the disk, and start the learner "
            "again, which recovers the replay"
        )
        self.directory = directory
        self.why = why


class ReplayBudgetError(RlError):
    """A replay needs more memory or disk than there is."""

    def __init__(self, what: str, need: str, have: str, fix: str) -> None:
        super().__init__(
            f"the replay needs {need} of {what}, but {have} is free: {fix}", key="replay.capacity"
        )
        self.what = what


class ReplayOverrunError(RlError):
    """Rows are overwritten faster than they can be read."""

    def __init__(self, capacity: int, tries: int) -> None:
        super().__init__(
            f"the replay's {capacity} rows were overwritten during each of {tries} attempts to "
            "read a sample: raise replay.capacity"
        )
        self.capacity = capacity


class QueueOverrunError(RlError):
    """Rows of a queue were overwritten before all their passes were over: a fault of ours."""

    def __init__(self, place: int, oldest: int) -> None:
        super().__init__(
            f"rows from {place:,} on were still to be drawn from the queue, and the oldest there "
            f"is {oldest:,}: the replay's writer did not wait for a checkpoint; report this"
        )


class LatestValueFormatError(RlError):
    """A map of the newest value is torn, foreign, or too small for what is asked of it."""


class MapSpaceError(RlError):
    """The disk has no room for a map, or will not take it."""

    def __init__(self, path: Path, need: str, why: str, fix: str = "") -> None:
        fix = fix or f"make room in {path.parent}"
        super().__init__(f"cannot make {path} of {need}: {why}: {fix}")
        self.path = path


class OneWriterError(RlError):
    """Another process holds what only one may."""

    def __init__(self, path: object) -> None:
        super().__init__(f"{path} is in use by another process: stop it first")
        self.path = path


class NestedArraysError(RlError):
    """Nested dictionaries of arrays cannot be given one name an array."""


class ModelMismatchError(RlError):
    """A model info's arrays do not fit the policy: names the first that differs."""

    def __init__(self, name: str, expected: str, got: str) -> None:
        super().__init__(f"model array {name!r}: expected {expected}, got {got}")
        self.name = name
