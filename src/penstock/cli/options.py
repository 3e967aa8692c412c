"""Options of the commands that must start quickly. They are declared once, and read without typer
where the words given are plain.

Loading typer, and pydantic which it checks words with, takes longer than starting a node. So a call
that is as it should be is read here; where help is asked for or anything is odd, typer reads the
same declarations, and its help and errors are the only ones there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints


class Option(NamedTuple):
    """`read` makes a value of a word, or raises ValueError. One that may be given `many` times
    gives a list."""

    name: str
    read: Callable[[str], Any]
    help: str
    many: bool = False
    metavar: str | None = None
    min: int | None = None
    max: int | None = None


class Argument(NamedTuple):
    """A word without a name."""

    read: Callable[[str], Any]
    help: str


def plain_arguments(command: Callable[..., None], words: Sequence[str]) -> dict[str, Any] | None:
    """What to call a command with; None where that is for typer to say."""
    declared = {
        name: get_args(parameter.annotation)[1:]
        for name, parameter in signature(command, eval_str=True).parameters.items()
    }
    options = {
        of[0].name: (name, of[0])
        for name, of in declared.items()
        if of and isinstance(of[0], Option)
    }
    unnamed = [(name, of[0]) for name, of in declared.items() if of and isinstance(of[0], Argument)]
    if len(options) + len(unnamed) < len(declared):
        return None
    found: dict[str, Any] = {}
    rest = iter(words)
    try:
        for word in rest:
            if word.startswith("-"):
                name, option = options[word]
                value = _bounded(option, next(rest))
                found[name] = [*found.get(name, ()), value] if option.many else value
            else:
                name, argument = unnamed.pop(0)
                found[name] = argument.read(word)
    except (KeyError, IndexError, StopIteration, ValueError):
        return None
    return None if unnamed else found


def _bounded(option: Option, word: str) -> Any:
    value = option.read(word)
    if (option.min is not None and value < option.min) or (
        option.max is not None and value > option.max
    ):
        raise ValueError(word)
    return value


def for_typer(command: Callable[..., None]) -> Callable[..., None]:
    """The same command, declared as typer wants it."""
    hints = dict(_translated(command))
    parameters = [
        parameter.replace(annotation=hints[name])
        for name, parameter in signature(command).parameters.items()
    ]

    def declared(**arguments: Any) -> None:
        command(**arguments)

    declared.__doc__, declared.__annotations__ = command.__doc__, hints
    declared.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]  # typeshed does not know it
    return declared


def _translated(command: Callable[..., None]) -> Iterator[tuple[str, Any]]:
    import typer

    for name, hint in get_type_hints(command, include_extras=True).items():
        kind, *declared = get_args(hint) or (hint,)
        match declared:
            case [Option() as option]:
                translated = typer.Option(
                    option.name,
                    help=option.help,
                    metavar=option.metavar,
                    min=option.min,
                    max=option.max,
                )
                yield name, Annotated[kind, translated]
            case [Argument() as argument]:
                yield name, Annotated[kind, typer.Argument(help=argument.help)]
            case _:
                yield name, hint
