"""Commands: their class and their list."""

from __future__ import annotations

import argparse
import difflib
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NoReturn

#: Exit statuses besides 0: it could not be done; it was not understood; it is not to be trusted.
FAILED, MISUSED, DOUBTFUL, INTERRUPTED = 1, 2, 3, 130
#: The commands, each a module of this package, in the order in which help lists them.
NAMES = ("check", "weights", "compare", "sample", "report", "demo", "paper")


@dataclass(frozen=True)
class Command:
    """A command: what it says about itself, the options it takes, what it does."""

    name: str
    summary: str
    description: str
    examples: tuple[str, ...]
    add_options: Callable[[argparse.ArgumentParser], None]
    #: Does the work; returns an exit status.
    run: Callable[[argparse.Namespace], int]

    def parser(self) -> Parser:
        """Describe the options for reading and for help."""
        shown = "\n".join(f"  $ {line}" for line in self.examples)
        parser = Parser(
            prog=f"lockquack {self.name}",
            description=textwrap.fill(self.description, 79),
            epilog=f"examples:\n{shown}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add_options(parser)
        parser.add_argument(
            "--traceback", action="store_true", help="show where in the code an error arose"
        )
        return parser


class Parser(argparse.ArgumentParser):
    """Reads the options of a command; says in one line what is wrong with them."""

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Read options, which may stand before, between and after the files."""
        options, unknown = self.parse_known_intermixed_args(arguments)
        if unknown:
            known = [text for action in self._actions for text in action.option_strings]
            self.error(f"unknown option {unknown[0]}.{near(unknown[0], known, cutoff=0.7)}")
        return options

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and leave."""
        ended = message if message.endswith("?") else f"{message.rstrip('.')}."
        self.exit(MISUSED, f"{self.prog}: {ended} See {self.prog} --help.\n")


def find_command(name: str) -> Command:
    """Import a command."""
    command: Command = import_module(f"lockquack.cli.{name}").COMMAND
    return command


def near(got: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Suggest the known name that is most like a misspelt one; dashes in front do not count."""
    names = {each.lstrip("-"): each for each in known}
    found = difflib.get_close_matches(got.lstrip("-"), list(names), n=1, cutoff=cutoff)
    return f" Did you mean {names[found[0]]}?" if found else ""
