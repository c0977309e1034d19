"""The page about Python runs from its first block to its last, and so does the notebook."""

import ast
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from configurations import configured

import vedette
from vedette.settings import configuration_table

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.timeout(300)
def test_every_block_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "tutorial" / "python.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(blocks) > 5
    main = ModuleType("__main__")  # as a notebook's: no file
    monkeypatch.setitem(sys.modules, "__main__", main)
    for block in blocks:
        exec(block, vars(main))
    said = capsys.readouterr().out
    assert "max_opts" in said
    assert "agent.learning_rate=0.0003/seed-0" in said
    assert "no learner answers there" in said
    assert (tmp_path / "runs/rates/report.html").is_file()


def test_the_sources_of_an_own_loop_are_given_as_its_page_says() -> None:
    page = (DOCS / "how-to" / "custom-loop.md").read_text("utf-8")
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", page, re.S) if "Source" in b]
    found: dict[str, Any] = {"vedette": vedette}
    exec(block, found)
    config = configured(
        env="CartPole-v1",
        agent="dqn",
        table=configuration_table({"replay": found["replay"]}, shared=True),
    )
    assert config.replay.sources == {"demos": vedette.SourceConfig(data="demos.npz", share=0.5)}


def test_the_notebook_uses_what_vedette_has() -> None:
    cells = json.loads((DOCS / "tutorial" / "notebook.ipynb").read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    tree = ast.parse("\n".join(text for text in code if "%pip" not in text))
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    names = {node.attr for node in used if ast.unparse(node.value) == "vedette"}
    assert len(names) > 5
    assert [name for name in names if not hasattr(vedette, name)] == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # of Jupyter's own parts, about one another
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(DOCS / "tutorial" / "notebook.ipynb", as_version=4)
    NotebookClient(
        notebook,
        timeout=240,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    said = json.dumps(notebook)
    assert "max_opts" in said
    assert "seed-1" in said
    assert (tmp_path / "runs/notebook/report.html").is_file()
    assert (tmp_path / "runs/notebook-seeds/report.html").is_file()
