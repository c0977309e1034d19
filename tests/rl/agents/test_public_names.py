"""The names that own agents are built from: there, documented, and without torch where they can."""

import subprocess
import sys
from pathlib import Path

import pytest

import vedette_rl.agents
import vedette_rl.core
import vedette_rl.networks

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "custom-agent.md").read_text()


@pytest.mark.parametrize("index", [vedette_rl.agents, vedette_rl.networks])
def test_every_public_name_is_there_and_on_the_page(index: object) -> None:
    names: list[str] = index.__all__  # type: ignore[attr-defined]
    assert {*names} <= {*dir(index)}
    for name in names:
        assert name.isupper() or getattr(index, name).__name__ == name
        assert f"`{name}`" in PAGE, name
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        index.nope  # type: ignore[attr-defined]  # noqa: B018


def test_what_acting_needs_loads_no_torch() -> None:
    code = (
        "import sys\n"
        "from vedette_rl.agents import AgentConfig, AgentKind, BoxActions\n"
        "from vedette_rl.networks import check_arrays, flat_parts, flatten_observation\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
