"""The pages of the documentation, their commands, and a place where these mean what they say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = {DOCS / "reference/_commands.md", *DOCS.glob("curves/*.md")}
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(
        page
        for page in DOCS.rglob("*.md")
        if page not in GENERATED and DOCS / "_build" not in page.parents
    ),
]


def page_id(page: Path) -> str:
    """The name of a page in a test's id."""
    return str(page.relative_to(ROOT))


# What the pages leave to be understood: runs are short here, and every host is this one.
SHORT = (
    "stop.max_opts=150 stop.target_return=none learner.warmup_period=200 "
    "learner.eval_interval=100 evaluation.episodes=2 actors.count=1"
)
LONG = "stop.max_seconds=600 stop.target_return=none learner.warmup_period=200"

_VEDETTE = """\
#!/bin/bash
case "$1" in
    run | scripts) export VEDETTE_SET="{short} $VEDETTE_SET" ;;
    learner) export VEDETTE_SET="{long} $VEDETTE_SET" ;;
    status) until_it_answers=1 ;;
    doctor) # with a learner only where the page names one
        if [[ " $* " == *" --learner "* ]]; then until_it_answers=1
        else unset VEDETTE_LEARNER; fi ;;
esac
if [ -n "$until_it_answers" ]; then
    for try in $(seq 30); do
        {python} -m vedette.cli "$@" && exit 0
        sleep 1
    done
    exit 1
fi
exec {python} -m vedette.cli "$@"
"""
_BEGINNING = """\
set -e
end() { status=$?; kill $(jobs -p) 2>/dev/null || true; wait; exit $status; }
trap end EXIT
"""
_COMMAND = re.compile(r"""(ssh \S+ )?(\w+=("[^"]*"|\S+) )*(?P<command>vedette .*)""")
_BACKGROUND = re.compile(
    r"^(ssh \S+ )?(vedette (learner|actors|dashboard|status .*--watch)|tensorboard|clients/c/\w+)\b"
)


def fences(page: Path) -> Iterator[tuple[str, str]]:
    """The blocks of a page: the word behind the fence, and what is in it."""
    for found in re.finditer(r"^```([^\n]*)\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
        yield found[1], found[2]


def commands(page: Path) -> list[str]:
    """Every line of a block that is a command of ours, without the variables before it."""
    texts = [text for kind, text in fences(page) if kind in ("", "sh")]
    found = [_COMMAND.match(line) for text in texts for line in text.splitlines()]
    return [match["command"] for match in found if match]


def words(command: str) -> list[str]:
    """The arguments of one of our commands, up to what the shell does with its output."""
    found = shlex.split(command, comments=True)
    ends = [found.index(sign) for sign in (">", "|", "||", "&&") if sign in found]
    return found[1 : min(ends, default=len(found))]


def script(page: Path) -> str:
    """The blocks marked ``sh`` of a page as one script; daemons run on beside it."""
    text = "\n".join(body for kind, body in fences(page) if kind == "sh")
    text = text.replace("0.0.0.0:5555", "$VEDETTE_BIND")
    text = text.replace("127.0.0.1 5555", "${VEDETTE_BIND/:/ }")
    text = re.sub(r"(?<=--learner )(gpu.example.org|127.0.0.1)\b", "$VEDETTE_LEARNER", text)
    lines = []
    for line in text.splitlines():
        if _BACKGROUND.match(line):
            body = line.partition("  #")[0]
            lines += [f"echo '$ {body}'", f"{body} &"]
        else:
            lines.append(line)
    return "\n".join([_BEGINNING, *lines, "echo all done"])


def make_place(place: Path) -> dict[str, str]:
    """A folder with the examples, and a PATH on which our commands are this checkout's.

    With ``VEDETTE_PYTHON`` they are those of another environment, and nothing is the checkout's.

    Returns:
        the variables that make it so.
    """
    python = os.environ.get("VEDETTE_PYTHON", sys.executable)
    path = [str(place), *(sys.path if python == sys.executable else [])]
    tools = place / "bin"
    tools.mkdir()
    for example in (DOCS / "examples").glob("*.py"):
        (place / example.name).write_bytes(example.read_bytes())
    shutil.copytree(ROOT / "clients" / "c", place / "clients" / "c")
    made = {
        "apt-get": "#!/bin/bash\n",
        "vedette": _VEDETTE.format(short=SHORT, long=LONG, python=python),
        "python": f'#!/bin/bash\nexec {python} "$@"\n',
        "pytest": f'#!/bin/bash\nexec {python} -m pytest "$@"\n',
        "tensorboard": f'#!/bin/bash\nexec {python} -m tensorboard.main "$@" --port 0\n',
        "ssh": '#!/bin/bash\nmkdir -p "$1"\ncd "$1"\nshift\nexec "$@"\n',
        "scp": '#!/bin/bash\nmkdir -p "${3%:*}"\ncp -rp "$2" "${3%:*}/${3#*:}"\n',
    }
    for name, text in made.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return {"PATH": f"{tools}:/usr/bin:/bin", "PYTHONPATH": ":".join(path)}
