"""The `fda` command."""

import sys

from fda_flower.cli.output import out
from fda_flower.cli.stopping import stoppable
from fda_flower.errors import ConfigError, FdaError
from fda_flower.names import missing_extra


def main() -> None:
    """Run the command. Errors are one line on standard error.

    Exit codes: 2 for a user's mistake, 1 for a failed run, 130 after Ctrl-C, 143 after SIGTERM.
    """
    try:
        with stoppable():
            out.begin(as_json="--json" in sys.argv)  # until the command line is read
            from fda_flower.cli.app import app

            app(prog_name="fda")
    except (FdaError, ImportError) as error:
        if missing := missing_extra(error):
            needed = ConfigError(f"{_command()} needs {missing}", thing=missing.partition(",")[0])
            print(f"Error: {needed}", file=sys.stderr)  # rich itself may be missing
            out.error_object(needed)
            sys.exit(2)
        if not isinstance(error, FdaError):
            raise
        out.error(error)
        sys.exit(2 if isinstance(error, ConfigError) else 1)


def _command() -> str:
    """Return the command, such as ``fda deploy key``."""
    words = 2 if sys.argv[1:2] in (["deploy"], ["data"]) else 1
    return " ".join(["fda", *(word for word in sys.argv[1 : 1 + words] if not word.startswith("-"))])


__all__ = ["main"]
