"""What the supervisor tells its processes at their start, as one JSON file in the run directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from vedette_rl.storage.atomic_files import write_json
from vedette_services.config.run_config import RunConfig
from vedette_services.net.addresses import Address
from vedette_services.run.directory import RunDirectory


@dataclass(frozen=True, slots=True)
class LearnerSpec:
    """One learner's run: where, what, on which address, and the folder of its keys, if any."""

    run: RunDirectory
    run_id: str
    config: RunConfig
    address: Address
    keys: Path | None = None

    def write(self) -> None:
        write_json(
            self.run.spec_file,
            {
                "run_id": self.run_id,
                "address": str(self.address),
                "keys": str(self.keys) if self.keys else None,
                "config": self.config.model_dump(mode="json"),
            },
        )

    @classmethod
    def read(cls, root: Path) -> LearnerSpec:
        run = RunDirectory(root)
        found = json.loads(run.spec_file.read_text())
        return cls(
            run,
            found["run_id"],
            RunConfig.model_validate(found["config"]),
            Address.parse(found["address"]),
            Path(found["keys"]) if found.get("keys") else None,
        )
