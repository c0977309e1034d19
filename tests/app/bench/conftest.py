"""The benchmarks of `scripts/bench` are tested here too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts" / "bench"))
