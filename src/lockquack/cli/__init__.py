"""The command line.

Exit status: 0, all is well; 1, something is wrong with the data or could not be done; 2, the
command was not understood, or names what does not exist; 3, there is a result, but do not trust
it (the solver did not converge, or ``--strict`` and there are notes); 130, interrupted.

Nothing heavy is imported before there is work to do: asking for help takes no time.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from lockquack.cli.commands import FAILED, INTERRUPTED, MISUSED, NAMES, find_command, near
from lockquack.cli.streams import prepare_streams, printable
from lockquack.cli.wording import shell_words
from lockquack.errors import LockquackError, UnknownNameError

_DEBUG = "LOCKQUACK_DEBUG"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    if arguments is None:
        prepare_streams()
        arguments = sys.argv[1:]
    debug = "--traceback" in arguments or bool(os.environ.get(_DEBUG))
    try:
        status = _run(list(arguments))
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\nlockquack: interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read the output has gone, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            raise
        return _explain(error)
    return status


def _run(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if given else MISUSED
    if given[0] == "--version":
        from lockquack import __version__

        print(f"lockquack {__version__}")
        return 0
    if given[0] not in NAMES:
        hint = near(given[0], NAMES) or f" Choose from {', '.join(NAMES)}."
        print(f"lockquack: unknown command {printable(given[0])}.{hint}", file=sys.stderr)
        return MISUSED
    command = find_command(given[0])
    options = command.parser().read(given[1:])
    options.command_line = shlex.join(["lockquack", *given])
    # Before numpy is imported: on small matrices several threads get into each other's way.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return command.run(options)


def _explain(error: Exception) -> int:
    """Say in one line what went wrong; return the exit status."""
    said = printable(_one_line(error))
    if isinstance(error, LockquackError | OSError | ImportError):
        print(f"lockquack: {said}", file=sys.stderr)
        return MISUSED if isinstance(error, UnknownNameError) else FAILED
    print(
        f"lockquack: unexpected {type(error).__name__}: {said} This is a fault of lockquack; "
        f"please report it with what {_DEBUG}=1 shows.",
        file=sys.stderr,
    )
    return FAILED


def _one_line(error: Exception) -> str:
    """Return the message of an error without line breaks."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}."
    return shell_words(error) or type(error).__name__


def _help() -> str:
    listed = "\n".join(f"  {name:<9}{find_command(name).summary}" for name in NAMES)
    return f"""\
Combine the predictions of several Bayesian models.

usage: lockquack COMMAND [FILE ...] [OPTION ...]

commands:
{listed}

Files are NetCDF, Zarr or CSV, one for each model. lockquack COMMAND --help says more.

example:
  $ lockquack weights normal.nc student.nc"""
