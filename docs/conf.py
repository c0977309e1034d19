"""The documentation site: `scripts/docs` builds it, with Sphinx and MyST."""

import re
from pathlib import Path

import typer
from typer.cli import get_docs_for_click

from vedette.cli.app import app

HERE = Path(__file__).parent

project = "Vedette"
html_title = "Vedette"
html_theme = "furo"
html_show_copyright = False
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "curves/*.md", "reference/_commands.md"]
highlight_language = "none"
default_role = "code"  # docstrings write `name` for code

myst_heading_anchors = 4

autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"


def write_commands() -> None:
    """The help of every command as one page, which reference/commands.md includes."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="vedette")
    text = get_docs_for_click(obj=command, ctx=context, name="vedette")
    text = f"#{text}"  # the page has a title of its own
    text = re.sub(r"\x08\n((?:.+\n)+)", r"```\n\1```\n", text)  # examples in a docstring
    (HERE / "reference" / "_commands.md").write_text(text, "utf-8")


write_commands()
