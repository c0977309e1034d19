"""``vedette verify``: executes a run's learning again, and writes a certificate."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from vedette.cli.answering import answering, check_writable
from vedette.cli.options import AllowImport, RunArgument
from vedette.cli.output import say, speaking_alone


@answering()
@speaking_alone()
def verify(
    run: RunArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The certificate. [RUN/certificate.json]"),
    ] = None,
    allow_import: AllowImport = None,
) -> None:
    """Execute a run's learning again and write a certificate. All of it that `rerun` can execute.

    \b
    vedette verify runs/cart    writes runs/cart/certificate.json
    """
    from vedette.rerunning import Progress
    from vedette_services.errors import FAILED
    from vedette_services.learner.rerun import Rerun
    from vedette_services.run.certificate import CERTIFICATE_FILE

    own = run / CERTIFICATE_FILE
    place = own if out is None else out
    if run.is_dir():
        check_writable("--out", place, own)
    with Rerun.open(run, allow_import=allow_import or ()) as again:
        segments = again.span.cut(None, None)
        result = again.execute(segments, Progress(segments[-1].end, partial(say, err=True)))
        certificate = again.certify(segments, result)
        span = again.span
    for line in (*result.lines(), *span.not_covered, certificate.describe()):
        say(line)
    certificate.write(place)
    say(f"the certificate in {place}")
    if not certificate.equal:
        raise typer.Exit(FAILED)
