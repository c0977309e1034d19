"""What is asked of a start: what becomes of a run that is there, and who plays and learns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vedette_services.config.import_permission import check_allowed
from vedette_services.errors import UsageError

Existing = Literal["resume", "new_replay", "fresh"]
"""What becomes of a run in the directory: it goes on; with an empty replay; or it is erased."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start, as the command line and the functions ask for it.

    ::

        start = Start.of(fresh=fresh, force=force, new_replay=new_replay)
        saved = settings_to_resume(out, start)          # completes what a killed start had decided
        loaded = load_config(..., saved=saved)
        plan = plan_start(loaded.config, out, start)    # checks all of it, and changes nothing
        run_learner(plan, address)                      # or `run_locally`, `run_in_process`

    Args:
        existing: what becomes of a run in the directory.
        force: a run may be erased.
        in_process: learner and actors take turns in one process.
        custom_loop: a training loop of the user's learns, so that the agent need not.
        allow_import: packages that the settings of a run in the directory may import, whoever has
            begun it.
    """

    existing: Existing = "resume"
    force: bool = False
    in_process: bool = False
    custom_loop: bool = False
    allow_import: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.force and not self.fresh:
            raise UsageError("--force: it needs --fresh, to erase the run in a directory")
        if self.in_process and self.custom_loop:
            raise UsageError("a loop of your own has no --in-process: its actors are processes")

    @classmethod
    def of(
        cls,
        *,
        fresh: bool = False,
        force: bool = False,
        new_replay: bool = False,
        in_process: bool = False,
        custom_loop: bool = False,
        allow_import: Collection[str] = (),
    ) -> Start:
        """The start that a command's options ask for.

        Raises:
            UsageError: they contradict each other, or allow what is no package.
        """
        if fresh and new_replay:
            raise UsageError(
                "--new-replay: it keeps the checkpoints, and --fresh erases them; leave one out"
            )
        check_allowed(allow_import)
        existing: Existing = "fresh" if fresh else "new_replay" if new_replay else "resume"
        return cls(existing, force, in_process, custom_loop, tuple(allow_import))

    @property
    def fresh(self) -> bool:
        """True if a run in the directory is erased."""
        return self.existing == "fresh"

    @property
    def new_replay(self) -> bool:
        """True if a run in the directory goes on with an empty replay."""
        return self.existing == "new_replay"

    @property
    def empty_replay(self) -> bool:
        """True if nothing of a replay that is there is kept."""
        return self.existing != "resume"

    @property
    def options(self) -> list[str]:
        """The options of ``vedette run`` that ask for it; what is there may be erased."""
        erase = {"resume": [], "new_replay": ["--new-replay"], "fresh": ["--fresh", "--force"]}
        allowed = [f"--allow-import={package}" for package in self.allow_import]
        return [*erase[self.existing], *["--in-process"] * self.in_process, *allowed]

    def to_json(self) -> dict[str, Any]:
        """As JSON, for another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, known: dict[str, Any]) -> Start:
        """The start that `to_json` gave."""
        return cls(**{**known, "allow_import": tuple(known["allow_import"])})


RESUME = Start()
"""A start that goes on with what is there."""
