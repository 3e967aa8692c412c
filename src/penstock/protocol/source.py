"""Builds Python source: indented lines, and the objects that they refer to by name.

The encoder and decoder compilers generate one function per message and version with it.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast


class Source:
    """The source of one function."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._lines: list[str] = []
        self._indent = 0
        self._namespace: dict[str, object] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a head line, and indent the lines added in the `with` block."""
        self.line(head)
        self._indent += 1
        yield
        self._indent -= 1

    def name(self, base: str, value: object) -> str:
        """Return a name under which the source can use an object. An object keeps its name."""
        name, suffix = base, 1
        while name in self._namespace and self._namespace[name] is not value:
            suffix += 1
            name = f"{base}_{suffix}"
        self._namespace[name] = value
        return name

    def constant(self, value: object) -> str:
        """Return the expression of a default value: a literal if Python has one, else a name."""
        if value is None or isinstance(value, bool | int | float | str | bytes) or value == ():
            return repr(value)
        return self.name("default", value)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def function(self, name: str) -> Callable[..., Any]:
        """Compile the source and return the function that it defines. Tracebacks show its lines, as
        they do for a file."""
        text, filename = self.text(), f"<penstock {self._title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        # The source comes from our own declarations and contains no input.
        exec(compile(text, filename, "exec"), self._namespace)
        return cast("Callable[..., Any]", self._namespace[name])
