"""Examples in docstrings can be parsed, name what there is, and call it by its signature."""

import pytest
from docstring_examples import Example, examples, faults, is_python

from vedette_rl.core import learning
from vedette_rl.replay import ring
from vedette_services.host.rate_limited_log import RateLimitedLog

FUNCTIONS = {
    "append",
    "connect",
    "draw_incarnation",
    "due",
    "learn",
    "load",
    "poll",
    "publish",
    "push",
    "save",
    "send",
    "spawn",
}
OBJECTS = {"actor", "failures", "rejections", "repeats", "sim", "vector"}
PLACEHOLDERS = frozenset(FUNCTIONS | OBJECTS)
"""What examples use of the reader's, without saying what it is."""


@pytest.fixture(scope="module")
def blocks() -> list[Example]:
    """All examples: read when a test runs, since reading imports every module."""
    return [example for example in examples() if is_python(example.text)]


def test_examples_call_what_there_is_by_its_signature(blocks: list[Example]) -> None:
    stale = {example.place: told for example in blocks if (told := faults(example, PLACEHOLDERS))}
    assert stale == {}


def test_every_placeholder_is_used(blocks: list[Example]) -> None:
    texts = " ".join(example.text for example in blocks)
    assert [name for name in PLACEHOLDERS if name not in texts] == []


def test_examples_of_modules_classes_and_functions_are_read(blocks: list[Example]) -> None:
    places = {example.place for example in blocks}
    assert {"vedette_rl.replay.ring", "vedette.api:train"} <= places
    assert "vedette_services.host.rate_limited_log:RateLimitedLog" in places


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("RingWriter.create(directory)", "RingWriter has no create"),
        ("RingWriter.open(d, row, 5, run_id=i, name=n)", "unexpected keyword argument 'name'"),
        ("RingReader()", "missing a required argument: 'directory'"),
        ("RingReader(directory, 1, 2, 3)", "too many positional arguments"),
        ("ring = RingWriter.open(directory, ...)\nring.inser(rows)", "RingWriter has no inser"),
        ("with LiveRows(d) as rows:\n    rows.column()", "missing a required argument: 'name'"),
        ("reader = RingReader(directory)\nreader.stamps", "RingReader has no stamps"),
        ("open_ring(directory)", "there is no open_ring"),
        ("rings.append(rows)", "nothing says what rings is"),
        ("from vedette_rl.replay.ring import Ring", "vedette_rl.replay.ring has no Ring"),
        ("vedette.trains()", "vedette has no trains"),
        ("ring = RingWriter(1, directory=, 2)", "is not Python"),
    ],
)
def test_a_stale_example_is_a_fault(text: str, fault: str) -> None:
    (told,) = faults(Example(ring, "here", None, text), frozenset())
    assert fault in told


def test_a_variable_has_the_class_that_the_docstring_documents() -> None:
    example = Example(learning, "here", RateLimitedLog, "limited.due_line(now)")
    assert faults(example, frozenset()) == ["RateLimitedLog has no due_line"]


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("def sample(self, rows): ...", "takes ['self', 'batch_size'], not ['self', 'rows']"),
        ("def draw(self, batch_size): ...", "ReplayBuffer has no draw"),
        ("def sample(self, batch_size): self.drawn()", "ReplayBuffer has no drawn"),
    ],
)
def test_a_class_of_an_example_overrides_what_its_base_has(method: str, fault: str) -> None:
    text = f"class Mine(ReplayBuffer):\n    {method}"
    (told,) = faults(Example(learning, "here", None, text), frozenset())
    assert fault in told


def test_what_is_no_python_is_left_out_and_a_broken_example_is_not() -> None:
    assert not is_python("DIR/ring.json    what the rows are\nDIR/lock    held by the writer")
    assert not is_python('[project.entry-points."vedette.agents"]\nmine = "my_pkg:MyAgent"')
    assert is_python("ring = RingWriter.open(directory, stamp=stamp, ...)")
