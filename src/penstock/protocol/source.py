"""Writing Python source: lines with their indentation, and the objects that the lines name.

The two compilers of this room generate one function per message, version and direction with it.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast


class Source:
    """A function under construction."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._lines: list[str] = []
        self._indent = 0
        self._namespace: dict[str, object] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is written within is indented under the head."""
        self.line(head)
        self._indent += 1
        yield
        self._indent -= 1

    def name(self, wanted: str, value: object) -> str:
        """A name by which the source can call an object; the same object keeps its name."""
        name, suffix = wanted, 1
        while name in self._namespace and self._namespace[name] is not value:
            suffix += 1
            name = f"{wanted}_{suffix}"
        self._namespace[name] = value
        return name

    def constant(self, value: object) -> str:
        """A default value: written out where Python has a literal for it, named otherwise."""
        if value is None or isinstance(value, bool | int | float | str | bytes) or value == ():
            return repr(value)
        return self.name("default", value)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def function(self, name: str) -> Callable[..., Any]:
        """Runs the source and gives the function it defines. Tracebacks show its lines, as they do
        for a file."""
        text, filename = self.text(), f"<penstock {self._title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        # Our own source, made from our own declarations: nothing from outside is in it.
        exec(compile(text, filename, "exec"), self._namespace)
        return cast("Callable[..., Any]", self._namespace[name])
