"""What is imported is what is declared: a fresh install has nothing else."""

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = {"vedette", "vedette_protocol", "vedette_rl", "vedette_services"}
BROUGHT = {  # what a declared package cannot be without, and is a part of its interface
    "h5py",  # of minari[hdf5]
    "pygame",  # Gymnasium's windows, which its extras bring
    "google",  # protobuf: the events that tensorboard's classes are
    "pydantic_core",
}
WHERE_IT_RUNS = {
    "IPython",  # used in a notebook, which brings it, and nowhere else
    "envpool",  # 850 MB of environments, used where somebody has installed them
}
NAMES = {
    "pyzmq": "zmq",
    "tomli-w": "tomli_w",
    "opencv-python-headless": "cv2",
    "ale-py": "ale_py",
    "prometheus-client": "prometheus_client",
    "pillow": "PIL",
    "mlflow-skinny": "mlflow",
}


def imported() -> dict[str, Path]:
    """Top-level packages that our code imports, and one place where each is."""
    found: dict[str, Path] = {}
    for package in ("app", "protocol", "rl", "services"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                for name in names:
                    found.setdefault(name.partition(".")[0], path)
    return found


def declared() -> set[str]:
    """What an install brings, extras too, as it is imported."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"]]
    for name, extra in project["optional-dependencies"].items():
        wanted += extra if name != "dev" else []
    distributions = {
        "".join(c if c.isalnum() or c in "-_." else " " for c in w).split()[0] for w in wanted
    }
    return {NAMES.get(name, name.replace("-", "_")) for name in distributions}


def test_every_import_is_ours_the_standard_librarys_or_declared() -> None:
    allowed = OURS | set(sys.stdlib_module_names) | declared() | BROUGHT | WHERE_IT_RUNS
    foreign = {name: str(path) for name, path in imported().items() if name not in allowed}
    assert foreign == {}
