"""The learning runs of `scripts/curves` and the benchmarks of `scripts/bench` are importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
