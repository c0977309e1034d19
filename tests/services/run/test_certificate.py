"""What a certificate says in a sentence."""

from vedette_services.run.certificate import Certificate


def certificate(*changes: str) -> Certificate:
    return Certificate(
        run="1",
        equal=True,
        first=0,
        last=10,
        states=2,
        scalars=1,
        weights={},
        rows={},
        configs=(),
        then={},
        now={},
        changes=changes,
        executed_s=0.0,
    )


def test_what_differs_is_named_and_nothing_else_claimed() -> None:
    said = certificate("OMP_NUM_THREADS: none then, 1 now").describe()
    assert ", where OMP_NUM_THREADS: none then, 1 now: all bits of 2 states" in said
    assert "machine" not in said
    assert ", where" not in certificate().describe()
