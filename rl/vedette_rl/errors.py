"""The errors of this package. Each error composes its own message."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple


class RlError(Exception):
    """The base of all errors that `vedette_rl` raises."""


class WrongSetting(NamedTuple):
    """A key of the configuration that is wrong, why, and the fix; "" where `why` says it."""

    key: str
    why: str
    fix: str = ""


class WrongSettingsError(RlError):
    """A part of the configuration was made in Python with wrong settings; a line for each."""

    def __init__(self, wrong: Iterable[WrongSetting]) -> None:
        self.wrong = tuple(wrong)
        lines = (f"{key}: {why}" + (f"; {fix}" if fix else "") for key, why, fix in self.wrong)
        super().__init__("\n".join(lines))


class UnsupportedSpaceError(RlError):
    """An agent cannot take this observation or action space."""

    def __init__(self, agent: str, part: str, space: object, takes: str) -> None:
        super().__init__(f"agent {agent!r} takes {takes} {part} spaces, not {space}")
        self.agent = agent
        self.part = part
        self.space = space


class PolicyDoesNotLearnError(RlError):
    """A policy class is asked to learn."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is a policy, which acts and learns nothing: feed your own training loop with "
            "vedette.Replay, or name an AgentKind"
        )
        self.name = name


class RankLostError(RlError):
    """A rank cannot train on with the others."""

    def __init__(self, number: int, count: int, why: str) -> None:
        super().__init__(f"rank {number} of {count} cannot train on with the others: {why}")
        self.number = number
        self.count = count
        self.why = why


class NoImageError(RlError):
    """``cnn`` is asked of an observation that has no image, or one too small for it."""

    def __init__(self, space: object, convolutions: str) -> None:
        least = "of at least 8 pixels a side (36 without channels)"
        if convolutions != "auto":
            least = f"large enough for agent.convolutions={convolutions}"
        super().__init__(f"'cnn' takes uint8 images {least}, or stacks of such, not {space}")
        self.space = space


class CamerasDifferError(RlError):
    """Images that are to share weights differ in size."""

    def __init__(self, images: Mapping[str, object]) -> None:
        sizes = ", ".join(f"{name}: {space}" for name, space in images.items())
        super().__init__(
            f"agent.shared_cnn takes images of one shape, not {sizes}: set agent.shared_cnn=false"
        )
        self.images = images


class ShiftTooLargeError(RlError):
    """A random shift leaves little of an image."""

    def __init__(self, shift: int, image: str, side: int) -> None:
        super().__init__(
            f"agent.random_shift is {shift}, and {image} has {side} pixels a side: set 'auto', or "
            f"{side // 4} at most, a quarter of it"
        )
        self.shift = shift
        self.image = image
        self.side = side


class UnknownEnvironmentError(RlError):
    """No environment of this name can be made here."""

    def __init__(self, env_id: str, why: str) -> None:
        super().__init__(f"cannot make environment {env_id!r}: {why}")
        self.env_id = env_id


class SpaceLayoutError(RlError):
    """A space cannot be laid out in columns."""

    def __init__(self, part: str, space: object, why: str) -> None:
        super().__init__(f"{part} space {space}: {why}")
        self.part = part
        self.space = space


class DeclaredSpaceError(RlError):
    """An environment has another space than the configuration declares."""

    def __init__(self, part: str, declared: object, found: object) -> None:
        super().__init__(f"env.{part} declares {declared}, and the environment here has {found}")
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
    """Nobody waits any more for an evaluation that is being played."""

    def __init__(self, version: int, ended: int, episodes: int) -> None:
        super().__init__(
            f"the evaluation of version {version} is given up: {ended} of {episodes} episodes "
            "had ended"
        )
        self.version = version
        self.ended = ended
        self.episodes = episodes


class UnknownAgentError(RlError):
    """No agent of this name is known."""

    def __init__(self, name: str, known: list[str], why: str = "") -> None:
        message = f": {why}" if why else ""
        super().__init__(
            f"unknown agent {name!r}{message}; known: {', '.join(known)}, "
            "or module:Name of your own"
        )
        self.name = name


class UnknownNameError(RlError):
    """A configuration names something that cannot be imported here, or is of another kind."""

    def __init__(self, key: str, name: str, why: str) -> None:
        super().__init__(f"{key} is {name!r}: {why}")
        self.key = key
        self.name = name
        self.why = why


class CustomNetworkError(RlError):
    """A network of the user's own does not fit the agent or the environment."""

    def __init__(self, name: str, why: str, key: str = "agent.network") -> None:
        super().__init__(f"{key} is {name!r}: {why}")
        self.name = name


class RowColumnError(RlError):
    """A column of transitions is not what an agent or step processor declares."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"column {name!r}: {why}")
        self.name = name
        self.why = why


class OwnPartError(RlError):
    """A part of the user's own returns what its interface does not say.

    Args:
        key, name: the key of the configuration, and what it names.
        method: that was called.
        found, expected: what came, and what should.
    """

    def __init__(self, key: str, name: str, method: str, found: str, expected: str) -> None:
        super().__init__(f"{key} is {name!r}: its {method}() returned {found}; return {expected}")
        self.key = key
        self.name = name
        self.method = method


class HindsightError(RlError):
    """Hindsight cannot relabel the transitions of this environment."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(f"actors.step_processor 'her': {why}: set {fix}")
        self.why = why


class RecordingError(RlError):
    """A record cannot be written."""

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(f"cannot record to {path}: {cause.strerror or cause}")
        self.path = path


class VideoError(RlError):
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


class TakeoverError(RlError):
    """A person cannot act in an environment."""

    def __init__(self, env_id: str, why: str, fix: str) -> None:
        super().__init__(f"environment {env_id!r} by a person: {why}; {fix}")
        self.env_id = env_id
        self.why = why


class CheckpointError(RlError):
    """A state cannot be written or read."""

    def __init__(self, path: Path, what: str, why: str) -> None:
        super().__init__(f"cannot {what} checkpoint {path}: {why}")
        self.path = path
        self.why = why


class DivergedError(RlError):
    """An agent's numbers are not finite any more.

    Args:
        opt_steps: its optimization steps.
        name: of the first such array.
    """

    def __init__(self, opt_steps: int, name: str) -> None:
        super().__init__(
            f"learning diverged: {name} is not finite after optimization step {opt_steps:,}. "
            "Nothing of it is saved; a smaller agent.learning_rate, agent.max_grad_norm=10 or "
            "env.reward_clip keep numbers finite"
        )
        self.opt_steps = opt_steps
        self.name = name


class PolicyFileError(RlError):
    """A file holds no policy that can be read."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"cannot read policy {path}: {why}")
        self.path = path


class ExportError(RlError):
    """A policy cannot be exported in this form."""


class DataSetError(RlError):
    """A data set cannot be read or written, or does not fit the environment.

    Args:
        name: as it was given.
        why: what is wrong with it.
        fix: what to do about it.
    """

    def __init__(self, name: str, why: str, fix: str) -> None:
        super().__init__(f"data set {name}: {why}: {fix}")
        self.name = name
        self.why = why
        self.fix = fix


class NoTdErrorsError(RlError):
    """An agent returns no TD errors where the replay draws by them."""

    def __init__(self) -> None:
        super().__init__(
            "replay.prioritized: the agent returns no TD errors to draw by: return them in its "
            "OptResult or set replay.prioritized=false"
        )


class EmptyReplayError(RlError):
    """A sample was asked of a replay that holds nothing."""

    def __init__(self) -> None:
        super().__init__("the replay is empty: wait for the warm-up before sampling")


class ReplayFormatError(RlError):
    """A replay on disk is torn, foreign, or of another format than asked for."""


class ReplayTornError(ReplayFormatError):
    """A file of a replay is missing, cut short, damaged, or another replay's.

    Args:
        path: the file, in the replay's directory.
        why: what is wrong with it.
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"the replay's file {path} {why}: delete {path.parent} to begin an empty replay"
        )
        self.path = path
        self.why = why


class ReplaySyncError(RlError):
    """The disk under a replay has failed."""

    def __init__(self, directory: Path, error: OSError) -> None:
        super().__init__(
            f"the replay in {directory} cannot be synced: {error.strerror or error}: check the "
            "disk, or name another as replay.directory"
        )


class ReplayDiffersError(ReplayFormatError):
    """A replay is whole, and another one than asked for.

    Args:
        what: ``run``, ``capacity``, ``guard``, ``storage`` (of what rows share) or ``columns``.
        message: all of it, with the fix.
    """

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what


class ReplayBudgetError(RlError):
    """A replay needs more memory or disk than there is."""

    def __init__(self, what: str, need: str, have: str, fix: str) -> None:
        super().__init__(f"the replay needs {need} of {what}, but {have} is free: {fix}")
        self.what = what


class FrameStorageError(RlError):
    """Frames are to be stored once, and they cannot be."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(
            f"replay.frame_storage is 'once', and {why}: {fix}, or set replay.frame_storage=auto"
        )


class ReplayOverrunError(RlError):
    """Rows are overwritten faster than they can be read."""

    def __init__(self, capacity: int, tries: int) -> None:
        super().__init__(
            f"the replay's {capacity} rows were overwritten during each of {tries} attempts to "
            "read a sample: raise replay.capacity"
        )
        self.capacity = capacity


class LimiterDeadlockError(RlError):
    """A limiter's settings would stop inserting and sampling at once."""


class LatestValueFormatError(RlError):
    """A map of the newest value is torn, foreign, or too small for what is asked of it."""


class MapSpaceError(RlError):
    """The disk has no room for a map, or will not take it."""

    def __init__(self, path: Path, need: str, why: str) -> None:
        super().__init__(f"cannot make {path} of {need}: {why}: make room in {path.parent}")
        self.path = path


class OneWriterError(RlError):
    """Another process holds what only one may."""

    def __init__(self, path: object) -> None:
        super().__init__(f"{path} is in use by another process: stop it first")
        self.path = path


class ModelMismatchError(RlError):
    """A model info's arrays do not fit the policy: names the first that differs."""

    def __init__(self, name: str, expected: str, got: str) -> None:
        super().__init__(f"model array {name!r}: expected {expected}, got {got}")
        self.name = name
