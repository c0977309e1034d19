"""What plays against the run's description ends the actor for good."""

import pytest

from vedette_rl.errors import (
    CustomPartError,
    DeclaredSpaceError,
    ModelMismatchError,
    RlError,
    RowColumnError,
)
from vedette_services.actors.faults import refuses_faults
from vedette_services.errors import RefusedError, SpecMismatchError


@refuses_faults
def meet(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "begins"),
    [
        (ModelMismatchError("q.0", "(2, 3)", "(2, 4)"), "this host's policy differs"),
        (DeclaredSpaceError("action", "Discrete(2)", "Discrete(3)"), "this host's environment"),
    ],
)
def test_what_is_another_here_than_in_the_run_is_a_mismatch(error: RlError, begins: str) -> None:
    with pytest.raises(SpecMismatchError, match=begins) as refused:
        meet(error)
    assert str(error) in str(refused.value)
    assert refused.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        RowColumnError("gain", "nobody declares it"),
        CustomPartError("agent.name", "mine:Agent", "act", "a list", "an array"),
    ],
)
def test_rows_that_nobody_declares_are_refused_with_the_whole_sentence(error: RlError) -> None:
    with pytest.raises(RefusedError) as refused:
        meet(error)
    assert str(refused.value) == f"the rows that actors make: {error}"


def test_another_error_passes_as_it_is() -> None:
    error = RlError("the disk has failed")
    with pytest.raises(RlError) as raised:
        meet(error)
    assert raised.value is error
