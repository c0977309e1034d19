"""What a run's directory is called where nobody said."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `vedette status` needs no configuration
    from vedette_services.config.run_config import RunConfig


def default_out(config: RunConfig, at: time.struct_time | None = None) -> Path:
    """``runs/AGENT-ENVIRONMENT-DATE-TIME`` that does not exist yet."""
    stamp = time.strftime("%Y%m%d-%H%M%S", at or time.localtime())
    agent, env = (re.sub(r"[^A-Za-z0-9_.-]+", "_", n) for n in (config.agent.name, config.env.id))
    first = Path("runs") / f"{agent}-{env}-{stamp}"
    out, again = first, 1
    while out.exists():
        again += 1
        out = first.with_name(f"{first.name}-{again}")
    return out


def host_in_an_id(host: str) -> str:
    """A host's name in the letters of a manager's id."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", host)
