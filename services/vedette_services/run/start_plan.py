"""What is decided about a start before anything changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from vedette_rl.envs.spaces import Spaces
from vedette_rl.envs.stored_spaces import spaces_from_json, spaces_to_json
from vedette_services.config.changes import ChangedSetting
from vedette_services.config.run_config import RunConfig
from vedette_services.run.replay_layout import ReplayLayout, replay_layout
from vedette_services.run.resume import ResumePoint, describe_change
from vedette_services.run.start import Start


@dataclass(frozen=True)
class StartPlan:
    """A start that can be made, and what was found out about it.

    Args:
        config: of the run.
        out: the run's directory, which need not exist yet.
        start: what is asked of it.
        spaces: of the environment, as agents see them.
        resume: where a run in the directory goes on.
        sources: the data sets that this start reads.
        lines: for the user: the replay's needs, sources, where the run goes on, changed settings,
            and the unused ones.
        unused: the lines of `lines` on settings that change nothing.
        note: where the configuration comes from: a comment in its file.
        packages: of the environment, where it is made here: their versions by their names.
        seen: what `state_of_run` said of the directory when this was planned.
    """

    config: RunConfig
    out: Path
    start: Start
    spaces: Spaces
    resume: ResumePoint
    sources: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    note: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    seen: str = ""

    @cached_property
    def layout(self) -> ReplayLayout:
        """The layout of the replay."""
        return replay_layout(self.config, self.spaces)

    @property
    def changes(self) -> tuple[ChangedSetting, ...]:
        """The settings that this start changes."""
        return self.resume.changes

    @property
    def notices(self) -> tuple[str, ...]:
        """The lines that a user may not have expected: settings that have changed, and those that
        change nothing."""
        return (*(describe_change(change) for change in self.changes), *self.unused)

    @property
    def new_best(self) -> bool:
        """True if the best model was chosen by other evaluations than this start plays."""
        return any("best" in change.stored_in for change in self.changes)

    def to_json(self) -> str:
        """The plan as text, for the process that carries it out."""
        changes = [
            {**asdict(change), "stored_in": sorted(change.stored_in)} for change in self.changes
        ]
        plan = {
            "config": self.config.model_dump(mode="json"),
            "out": str(self.out),
            "start": self.start.to_json(),
            "spaces": spaces_to_json(self.spaces),
            "opt_steps": self.resume.opt_steps,
            "changes": changes,
            "sources": self.sources,
            "lines": self.lines,
            "unused": self.unused,
            "note": self.note,
            "packages": dict(self.packages),
            "seen": self.seen,
        }
        return json.dumps(plan)

    @classmethod
    def from_json(cls, text: str) -> StartPlan:
        """The plan that `to_json` wrote."""
        plan: dict[str, Any] = json.loads(text)
        changes = tuple(
            ChangedSetting(**{**change, "stored_in": frozenset(change["stored_in"])})
            for change in plan["changes"]
        )
        return cls(
            RunConfig.model_validate(plan["config"]),
            Path(plan["out"]),
            Start.from_json(plan["start"]),
            spaces_from_json(plan["spaces"]),
            ResumePoint(plan["opt_steps"], changes),
            tuple(plan["sources"]),
            tuple(plan["lines"]),
            tuple(plan["unused"]),
            plan["note"],
            plan["packages"],
            plan["seen"],
        )
