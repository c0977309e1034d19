"""``vedette push``: a policy to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vedette.cli.options import AllowImport, Checkpoint, RunArgument
from vedette.cli.output import say, speaking_alone


@speaking_alone()
def push(
    run: RunArgument,
    repository: Annotated[
        str,
        typer.Argument(
            metavar="USER/NAME", help="A model repository of the Hub.", show_default=False
        ),
    ],
    private: Annotated[
        bool,
        typer.Option(
            "--private", help="Create a private repository; an existing public one is refused."
        ),
    ] = False,
    checkpoint: Checkpoint = None,
    episodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            metavar="N",
            help="Number of episodes for the model card. [as the run's evaluations: 20]",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the files into this new folder, and push nothing.",
        ),
    ] = None,
    allow_import: AllowImport = None,
) -> None:
    """Push a policy to the Hugging Face Hub. With a model card; the best of a run by evaluation.

    Pushed are the policy, the card, the configuration, the summary and the provenance: versions,
    hardware, commit and settings, but no names of hosts or folders and no options of the command.

    \b
    vedette push runs/cart me/cart-dqn --out look        what would be pushed
    vedette push runs/cart me/cart-dqn
    vedette eval hf://me/cart-dqn
    """
    from vedette.hub import Repository, push_policy, write_folder
    from vedette_rl.storage.atomic_files import replacing
    from vedette_services.errors import UsageError
    from vedette_services.run.output_files import check_output

    allowed = allow_import or ()
    if out is None:
        url = push_policy(
            run,
            repository,
            private=private,
            checkpoint=checkpoint,
            episodes=episodes,
            allow_import=allowed,
        )
        say(url)
        return
    name = Repository.parse(repository).name
    if out.exists():
        raise UsageError(f"--out {out}: it is there already; name a new folder")
    check_output("--out", out)
    with replacing(out) as aside:
        aside.mkdir()
        write_folder(run, aside, name, checkpoint, episodes, allowed)
    for path in sorted(out.iterdir()):
        say(path)
