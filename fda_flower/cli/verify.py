"""The command that compares a run's files with the chain of its rounds."""

from pathlib import Path
from typing import Annotated

import typer

from fda_flower.cli.console import say


def verify(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="HASH",
            help="The last hash, as you have noted it elsewhere when the run ended.",
            show_default="none",
        ),
    ] = None,
) -> None:
    """Verify that a run's records, models and configuration are as the run has left them.

    Whoever can write to the folder can make its chain anew: note the last hash in another place, and give it
    as --expect.
    """
    from fda_flower.verification import verify as verify_run

    found = verify_run(run, expect)
    for note in found.notes:
        say(f"Note: {note}")
    for problem in found.problems:
        say(f"Not ok: {problem}")
    if found.problems:
        raise typer.Exit(1)
    say(f"ok: {found.rounds} rounds, last hash {found.last}")
