"""The parser without typer gives typer's results, or leaves the command line to typer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.options import Argument, Option, for_typer, plain_arguments

PLAIN = [
    ["file"],
    ["file", "--port", "0"],
    ["--port", "-1", "file"],
    ["--many", "a=b", "file", "--dir", "some/where", "--many", "c=d"],
    ["--bounded", "3", "file"],
    ["--flag", "file"],
    ["file", "--flag", "--port", "1"],
]
OTHER = [
    [],
    ["--help"],
    ["f", "--port"],
    ["f", "--port", "x"],
    ["f", "--bounded", "0"],
    ["f", "--bounded", "4"],
    ["f", "--what", "1"],
    ["f", "g"],
]


def recording(seen: dict[str, Any]) -> Callable[..., None]:
    def command(
        file: Annotated[Path, Argument(Path, "A file.")],
        port: Annotated[int | None, Option("--port", int, "A port.")] = None,
        directory: Annotated[Path, Option("--dir", Path, "Where.")] = Path("here"),
        settings: Annotated[list[str] | None, Option("--many", str, "Settings.", many=True)] = None,
        bounded: Annotated[int, Option("--bounded", int, "From 1 to 3.", min=1, max=3)] = 2,
        flag: Annotated[bool, Option("--flag", bool, "A flag.", is_flag=True)] = False,
    ) -> None:
        """A command."""
        seen.update(
            file=file,
            port=port,
            directory=directory,
            settings=settings or [],
            bounded=bounded,
            flag=flag,
        )

    return command


def by_typer(words: list[str]) -> tuple[int, str, dict[str, Any]]:
    seen: dict[str, Any] = {}
    app = typer.Typer(rich_markup_mode=None)
    app.command("command")(for_typer(recording(seen)))
    result = CliRunner().invoke(app, words)
    return result.exit_code, result.output, seen


@pytest.mark.parametrize("words", PLAIN)
def test_plain_arguments_are_parsed_as_by_typer(words: list[str]) -> None:
    seen: dict[str, Any] = {}
    command = recording(seen)
    arguments = plain_arguments(command, words)
    assert arguments is not None
    command(**arguments)
    code, output, by_typer_seen = by_typer(words)
    assert code == 0, output
    assert seen == by_typer_seen


@pytest.mark.parametrize("words", OTHER)
def test_other_arguments_are_left_to_typer(words: list[str]) -> None:
    assert plain_arguments(recording({}), words) is None
    code, output, seen = by_typer(words)
    assert seen == {}
    assert "Usage" in output or "requires an argument" in output
    assert code == (0 if words == ["--help"] else 2)
