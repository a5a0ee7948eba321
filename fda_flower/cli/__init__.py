"""The `fda` command."""

import errno
import itertools
import sys

from fda_flower.cli.output import out
from fda_flower.cli.stopping import stoppable
from fda_flower.errors import ConfigError, FdaError, RunError, print_anything
from fda_flower.names.packages import missing_extra


def main() -> None:
    """Run the command. Errors are one line on standard error.

    Exit codes: 2 for a user's mistake, 1 for a failed run, 130 after Ctrl-C, 143 after SIGTERM.
    """
    print_anything()
    try:
        with stoppable():
            out.begin(as_json="--json" in sys.argv)  # until the command line is read
            _refuse_empty(sys.argv)
            from fda_flower.cli.app import app

            app(prog_name="fda")
    except OSError as error:
        if (found := _of_the_disk(error)) is None:
            raise
        _end(found)
    except UnicodeEncodeError as error:
        text = error.object[error.start : error.end].encode("ascii", "backslashreplace").decode()
        why = f"the language settings of this terminal do not hold '{text}'"
        _end(ConfigError(why, thing="text", value=text, remedy="set PYTHONUTF8=1"))
    except (FdaError, ImportError) as error:
        if missing := missing_extra(error):
            needed = ConfigError(f"{_command()} needs {missing}", thing=missing.partition(",")[0])
            print(f"Error: {needed}", file=sys.stderr)  # rich itself may be missing
            out.error_object(needed)
            sys.exit(2)
        if not isinstance(error, FdaError):
            raise
        _end(error)


def _end(error: FdaError) -> None:
    out.error(error)
    sys.exit(2 if isinstance(error, ConfigError) else 1)


def _refuse_empty(words: list[str]) -> None:
    """Raise a `ConfigError` for an empty value, as of a shell's variable that is not set."""
    for before, word in itertools.pairwise(words):
        option, is_given, value = word.partition("=") if word.startswith("--") else (before, "=", word)
        if is_given and not value:
            remedy = "give it a value, or leave it out; is a variable of the shell not set?"
            raise ConfigError(f"the value after '{option}' is empty", thing=option, value="", remedy=remedy)


def _of_the_disk(error: OSError) -> FdaError | None:
    """Return what a full disk or a file's path has caused; None if the error is of something else."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "free some; a run continues with --resume"
        return RunError(f"{error.strerror}", thing="disk", value=error.filename, remedy=remedy)
    if error.filename is None:
        return None
    why = f"{error.strerror}: '{error.filename}'"
    return ConfigError(why, thing="path", value=error.filename, remedy="choose another")


def _command() -> str:
    """Return the command, such as ``fda deploy key``."""
    words = 2 if sys.argv[1:2] in (["deploy"], ["data"]) else 1
    return " ".join(["fda", *(word for word in sys.argv[1 : 1 + words] if not word.startswith("-"))])


__all__ = ["main"]
