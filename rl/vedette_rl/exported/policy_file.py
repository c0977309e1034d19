"""A policy in one file: its arrays, and a header with all else that acting needs.

Two forms hold the same. ``numpy`` is an npz of arrays named ``model/NAME`` and of ``header``, JSON
in bytes; ``safetensors`` has the arrays by NAME and the header in its metadata. Nothing in either
is executed, and reading them loads no torch. Gymnasium's spaces are JSON in the header.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from vedette_rl.agents.registry import agent_kind
from vedette_rl.core.acting import LoadedPolicy, Policy, act_of
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.core.columns import Columns
from vedette_rl.core.exact_cast import InexactCastError, cast_exactly
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.category_range import CategoryRange
from vedette_rl.envs.layout import ActionConverter, ObservationLayout
from vedette_rl.envs.spaces import Spaces, agent_spaces
from vedette_rl.envs.stored_spaces import space_from_json, space_to_json
from vedette_rl.errors import PolicyFileError, SpaceLayoutError, other_format
from vedette_rl.import_by_name import find_import_names
from vedette_rl.settings.later_keys import dump_for_files
from vedette_rl.settings.plain_values import user_path
from vedette_rl.storage.regular_files import open_regular, parse_json

FORMAT = "vedette policy"
FORMAT_VERSION = 1
_HEADER = "header"
_MODEL = "model/"
_ZIP_MAGIC = b"PK"
_NO_HEADER = "arrays without the header of a policy"
_GIVE = (
    "give a file that `vedette export --format safetensors` (or numpy) wrote, or a run's directory"
)
_OTHER_FILES = {
    ".onnx": "it is for programs that read ONNX, and is not read back",
    ".py": "it is a Python program",
    ".toml": "it is a configuration",
    ".zip": "it is an archive, and no policy of ours",
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".pkl"), "it is of another program"),
}
"""What a file that holds no policy of ours is by its name's ending."""

Allowed = bool | Collection[str]
"""What a file may import: everything, nothing, or the modules of these packages."""


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """The contents of a policy file.

    Args:
        config: the agent's.
        spaces: the environment's.
        model: its arrays and version.
        meta: facts about it in JSON's types: the environment, returns.
    """

    config: AgentConfig
    spaces: Spaces
    model: ModelInfo
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def agent_spaces(self) -> Spaces:
        """The spaces as agents see them: discrete actions count from 0."""
        return agent_spaces(self.spaces.observation, self.spaces.action, stack=self.spaces.stack)

    def header(self) -> str:
        """All but the arrays, as JSON."""
        return json.dumps(
            {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "agent": dump_for_files(self.config),
                "observation": space_to_json(self.spaces.observation),
                "action": space_to_json(self.spaces.action),
                "version": self.model.version,
                "meta": self.meta,
            }
        )

    def make_policy(self, *, seed: int = 0) -> Policy:
        """The policy, on its model, as actors and evaluators play it: discrete actions count from
        0. Built-in agents act in numpy, on images too."""
        kind = agent_kind(self.config.name)
        build = kind.build_numpy_policy or kind.build_policy
        policy = build(self.config, self.agent_spaces, ranks=np.zeros(1), seed=seed)
        policy.sync_model(self.model)
        return policy

    def make_environment_policy(self, *, seed: int = 0) -> LoadedPolicy:
        """The policy, on its model, giving the environment's own actions."""
        return _EnvironmentPolicy(self.make_policy(seed=seed), self.spaces)


_ACT_ELSEWHERE = ("predict", "get_action", "compute_single_action", "step", "forward")
"""Names of `act` in other libraries."""


class _EnvironmentPolicy:
    """A `LoadedPolicy`: the environment takes its actions as they are. It checks what it sees."""

    def __init__(self, policy: Policy, spaces: Spaces) -> None:
        self._policy = policy
        self._act = act_of(policy)
        self._form = ActionConverter(spaces.action, 1)
        self._layout = ObservationLayout(spaces.observation)
        self._leaves = self._layout.leaves
        self._columns = ", ".join(f"{leaf.name} {(*leaf.shape,)}" for leaf in self._leaves)
        self._begins = False

    def __repr__(self) -> str:
        return f"{type(self._policy).__name__}({self._columns})"

    def sync_model(self, model: ModelInfo) -> None:
        """Act on this model from now on."""
        self._policy.sync_model(model)

    def reset(self) -> None:
        """Have all episodes begin with the next observations."""
        self._begins = True

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            """Explain the names that models of other libraries have."""
            hint = f": {self._call}" if name in _ACT_ELSEWHERE else ""
            raise AttributeError(f"a policy has no {name!r}{hint}")

    @property
    def _call(self) -> str:
        rows = ", ".join(f"{leaf.name!r}: {leaf.name}[None]" for leaf in self._leaves)
        return f"policy.act({{{rows}}}, explore=False)[0] is the action of one observation"

    def act(
        self,
        obs: Columns,
        *,
        explore: bool | None = None,
        begins: NDArray[np.bool_] | None = None,
    ) -> NDArray[Any]:
        """Actions ``(E, *shape)``, as the environment names them.

        Args:
            obs: columns in rows, arrays or lists: ``{"obs": [[0.1, 0.0, -0.2, 0.0]]}``.
            explore: has to be given.
            begins: ``(E,)`` of truth values, as `vedette_rl.core.Policy` has it; None where all
                episodes go on.

        Raises:
            SpaceLayoutError: the columns are not those of the observations, in as many rows each,
                or a number is not finite, none of its column or no category.
            ValueError: `begins` is not one truth value for each row.
        """
        if explore is None:
            raise TypeError(f"act() needs explore=False, or True with its noise: {self._call}")
        columns = _as_columns(obs, self._layout)
        rows = len(next(iter(columns.values())))
        if begins is not None:
            begins = _as_begins(begins, rows)
        if self._begins:
            begins = np.ones(rows, np.bool_)
            self._begins = False
        actions = self._act(columns, explore=explore, begins=begins)
        return actions if self._form.is_identity else self._form.to_environment(actions)


def _as_begins(begins: Any, rows: int) -> NDArray[np.bool_]:
    """Return where episodes begin as an array ``(E,)``.

    Numbers are refused: a policy with memory would take 0 and 1 for the places of rows.

    Raises:
        ValueError: it is not one truth value for each of the rows.
    """
    array = np.asarray(begins)
    if array.shape != (rows,) or array.dtype != np.bool_:
        came = f"shape {array.shape} of {array.dtype}"
        raise ValueError(f"begins is one bool for each of {rows} rows, shape ({rows},); got {came}")
    return array


def _as_columns(obs: Mapping[str, Any], layout: ObservationLayout) -> Columns:
    """Return observations as arrays of their columns' dtypes.

    Raises:
        SpaceLayoutError: they are not those columns, in as many rows each, or a number is not
            finite, none of its column or no category.
    """
    leaves = layout.leaves
    columns: Columns = {}
    names = [leaf.name for leaf in leaves]
    for leaf in leaves:
        expected = "(" + ", ".join(["B", *map(str, leaf.shape)]) + ("" if leaf.shape else ",") + ")"
        if not isinstance(obs, Mapping) or leaf.name not in obs:
            came = f"the columns {[*obs]}" if isinstance(obs, Mapping) else type(obs).__name__
            why = f"expected a dictionary of {names}, {leaf.name} of shape {expected}, got {came}"
            raise SpaceLayoutError("observation", leaf.space, why)
        try:
            array = np.asarray(obs[leaf.name])
        except ValueError as e:  # lists of several lengths
            why = f"expected {leaf.name} of shape {expected}, got rows of several lengths"
            raise SpaceLayoutError("observation", leaf.space, why) from e
        shape = array.shape
        if not shape or shape[1:] != leaf.shape:
            fix = f"; add a row axis: {leaf.name}[None]" if shape == leaf.shape else ""
            why = f"expected {leaf.name} of shape {expected}, got {shape}{fix}"
            raise SpaceLayoutError("observation", leaf.space, why)
        try:
            columns[leaf.name] = cast_exactly(array, leaf.dtype)
        except (InexactCastError, TypeError, ValueError) as e:
            why = f"{leaf.name} is {leaf.dtype}, and {e}"
            raise SpaceLayoutError("observation", leaf.space, why) from e
        span = CategoryRange.of(leaf.space)
        if span is not None and not span.has_all(columns[leaf.name]):
            place = span.find_outside(columns[leaf.name]) or ()
            why = f"{leaf.name} has {array[place]} at {[*place]}: give {span.describe(place[1:])}"
            raise SpaceLayoutError("observation", leaf.space, why, place)
    rows = {leaf.name: len(columns[leaf.name]) for leaf in leaves}
    for leaf in leaves:  # numpy would repeat a single row
        if rows[leaf.name] != rows[names[0]]:
            counts = ", ".join(f"{name} {count}" for name, count in rows.items())
            why = (
                f"the columns have unequal numbers of rows, {counts}: give one for each observation"
            )
            raise SpaceLayoutError("observation", leaf.space, why)
    if (found := layout.find_not_finite(columns)) is not None:
        leaf, place = found
        why = f"{leaf.name} has {columns[leaf.name][place]} at {[*place]}, which is not finite"
        raise SpaceLayoutError("observation", leaf.space, why, place)
    return columns


def load_policy(path: str | Path, *, seed: int = 0, allow_import: Allowed = False) -> LoadedPolicy:
    """The policy that `vedette export` wrote as ``numpy`` or ``safetensors``; its actions are the
    environment's own.

    Args:
        path: the policy's file.
        seed: the seed of exploration, if it explores.
        allow_import: import the custom classes that the file names (an agent, a network, an
            exploration): all of them, or those of these packages.

    Raises:
        PolicyFileError: it is not such a file, it is torn, or it names a module.
        TypeError: `allow_import` is one text, and no collection of names.
    """
    return read_policy(path, allow_import=allow_import).make_environment_policy(seed=seed)


def read_policy(path: str | Path, *, allow_import: Allowed = False) -> PolicyFile:
    """The contents of a file; arguments as of `load_policy`."""
    if isinstance(allow_import, str):  # `in` would look for a part of the text
        raise TypeError(f"allow_import={allow_import!r}: write allow_import=[{allow_import!r}]")
    path = user_path(path)
    if path.is_dir():
        fix = f"`vedette export {path} --format numpy --out policy.npz` writes the policy of a run"
        raise PolicyFileError(path, f"it is a folder, and no policy; {fix}")
    try:
        with open_regular(path) as file:
            is_zip = file.read(2) == _ZIP_MAGIC
        header, arrays = _read_numpy(path) if is_zip else _read_safetensors(path)
        return _policy_file(path, header, arrays, allow_import=allow_import)
    except OSError as e:
        raise PolicyFileError(path, e.strerror or str(e)) from e
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            why = f"agent.{key} is not known here: a newer version of vedette, or of its own agent"
            raise PolicyFileError(path, f"{why}, wrote it: install that version") from e
        raise PolicyFileError(path, f"its agent's {key}: {first['msg']}") from e
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as e:
        what = _OTHER_FILES.get(path.suffix.lower()) or f"it is torn or of another program ({e})"
        raise PolicyFileError(path, f"{what}; {_GIVE}") from e


def write_numpy(file: IO[bytes], policy: PolicyFile) -> None:
    """Write the ``numpy`` form."""
    columns: dict[str, Any] = {_MODEL + name: a for name, a in policy.model.arrays.items()}
    columns[_HEADER] = np.frombuffer(policy.header().encode(), np.uint8)
    # allow_pickle=False would be an array of its own before numpy 2.1; no array holds objects.
    np.savez(file, **columns)


def write_safetensors(file: IO[bytes], policy: PolicyFile) -> None:
    """Write the ``safetensors`` form."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in policy.model.arrays.items()}
    file.write(save(arrays, {"format": FORMAT, _HEADER: policy.header()}))


def _read_numpy(path: Path) -> tuple[str, dict[str, NDArray[Any]]]:
    # numpy leaves a file that it opened itself open where it finds it torn
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        # Files that were written with numpy before 2.1 may have an array `allow_pickle`, too.
        if _HEADER not in file.files:
            raise ValueError(_NO_HEADER)
        names = [name for name in file.files if name.startswith(_MODEL)]
        arrays = {name.removeprefix(_MODEL): file[name] for name in names}
        return file[_HEADER].tobytes().decode(), arrays


def _read_safetensors(path: Path) -> tuple[str, dict[str, NDArray[Any]]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            header = (file.metadata() or {}).get(_HEADER)
            if header is None:
                raise ValueError(_NO_HEADER)
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as e:
        raise ValueError(str(e)) from e


def _policy_file(
    path: Path, header: str, arrays: dict[str, NDArray[Any]], *, allow_import: Allowed
) -> PolicyFile:
    text = parse_json(header)
    if text["format"] != FORMAT:
        raise ValueError(repr(text["format"]))
    if text["format_version"] != FORMAT_VERSION:
        raise PolicyFileError(path, other_format(text["format_version"], FORMAT_VERSION))
    name = str(text["agent"]["name"])
    for imported in find_import_names(text["agent"]):  # the agent, its network, its exploration
        package = imported.partition(":")[0].partition(".")[0]
        if allow_import is not True and package not in (allow_import or ()):
            why = f"it imports {imported!r}: give allow_import=True if you trust it"
            raise PolicyFileError(path, f"{why} (a command: --allow-import {package})")
    config = agent_kind(name).config.model_validate(text["agent"])
    spaces = Spaces(space_from_json(text["observation"]), space_from_json(text["action"]))
    return PolicyFile(config, spaces, ModelInfo(int(text["version"]), arrays), text["meta"])
