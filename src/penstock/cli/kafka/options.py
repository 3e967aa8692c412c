"""Option parsing as in Kafka's tools.

`Options` parses like jopt-simple: --name value, --name=value or -name value, in any order.
`argument_parser`, for tools with subcommands, is Python's argparse with the exit code of
argparse4j.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

# The release of Apache Kafka whose tools these are.
KAFKA_VERSION = "4.3.0"

_DESCRIPTION_COLUMN, _WIDTH = 41, 80


class Refused(Exception):
    """The arguments are invalid: the message goes to stderr, with exit code 1."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option is a flag if `argument` is None; an `optional` argument may be omitted."""

    help: str
    argument: str | None = None
    optional: bool = False


DEFAULT_OPTIONS = {
    "help": Option("Print usage information."),
    "version": Option("Display Kafka version."),
}


class Options:
    """The given options. As in Kafka's tools, positional words are ignored. `order` has their names
    in the order in which they were given."""

    def __init__(self, known: Mapping[str, Option], words: Sequence[str], purpose: str) -> None:
        self._known = {**DEFAULT_OPTIONS, **known}
        self._given: dict[str, list[str]] = {}
        self.order: list[str] = []
        rest = deque(words)
        while rest:
            word = rest.popleft()
            if word.startswith("-") and word != "-":
                self._take(word.lstrip("-"), rest)
        if not words or self.has("help"):
            self.usage(purpose)
        if self.has("version"):
            print(KAFKA_VERSION)
            sys.exit(0)

    def has(self, *names: str) -> bool:
        return any(name in self._given for name in names)

    def values(self, name: str) -> list[str]:
        return self._given.get(name, [])

    def value(self, name: str) -> str | None:
        values = self.values(name)
        if len(values) > 1:
            raise Refused(f"Found multiple arguments for option {name}, but you asked for only one")
        return values[0] if values else None

    def number(self, name: str) -> int | None:
        text = self.value(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise Refused(f"Cannot parse argument '{text}' of option {name}") from None

    def require(self, *names: str) -> None:
        for name in names:
            if not self.has(name):
                self.usage(f'Missing required argument "[{name}]"')

    def exclude(self, name: str, *others: str) -> None:
        for other in others:
            if self.has(name) and self.has(other):
                self.usage(f'Option "[{name}]" can\'t be used with option "[{other}]"')

    def usage(self, reason: str) -> NoReturn:
        """Print the usage to stderr, also for --help, and exit."""
        print(reason, file=sys.stderr)
        print(
            f"{'Option':<{_DESCRIPTION_COLUMN}}Description\n"
            f"{'------':<{_DESCRIPTION_COLUMN}}-----------",
            file=sys.stderr,
        )
        for name, option in sorted(self._known.items()):
            left = f"--{name} <{option.argument}>" if option.argument else f"--{name}"
            lines = textwrap.wrap(option.help, _WIDTH - _DESCRIPTION_COLUMN - 2) or [""]
            if len(left) >= _DESCRIPTION_COLUMN:
                print(left, file=sys.stderr)
                left = ""
            for number, line in enumerate(lines):
                cell, indent = ("", "  ") if number else (left, "")
                print(f"{cell:<{_DESCRIPTION_COLUMN}}{indent}{line}", file=sys.stderr)
        sys.exit(1)

    def _take(self, text: str, rest: deque[str]) -> None:
        name, equals, value = text.partition("=")
        option = self._known.get(name)
        if option is None:
            raise Refused(f"{name} is not a recognized option")
        self.order.append(name)
        values = self._given.setdefault(name, [])
        if option.argument is None:
            return
        if not equals:
            if option.optional and (not rest or rest[0].startswith("-")):
                return
            if not rest:
                raise Refused(f"Option {name} requires an argument")
            value = rest.popleft()
        values.append(value)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            names = missing.split(", ")
            without_command = any(name.lower() == "command" for name in names)
            message = "too few arguments" if without_command else f"argument {names[0]} is required"
        print(f"{self.prog.split()[0]}: error: {message}", file=sys.stderr)
        sys.exit(1)


def argument_parser(name: str, purpose: str) -> argparse.ArgumentParser:
    return _Parser(name, description=purpose, allow_abbrev=False)
