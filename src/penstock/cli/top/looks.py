"""The last two looks at a cluster, and what to print of them.

A look that fails keeps the one before, so that the screen stays and says what is wrong.
"""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Any

from penstock.cli.session import CommandFailed
from penstock.cli.top.ask import Wanted, ask
from penstock.cli.top.rows import Rows, as_object, rows_of
from penstock.cli.top.screen import (
    Limits,
    Section,
    View,
    error_line,
    heading_lines,
    is_healthy,
    plain_lines,
    screen,
    sections,
)
from penstock.cli.top.snapshot import Snapshot
from penstock.errors import KafkaError

if TYPE_CHECKING:
    from rich.console import Group

    from penstock.client.client import Client


def pause_s(interval_s: float, took_s: float) -> float:
    """Return the pause after a look, which is not shorter than the look: a large cluster is asked
    at most half of the time."""
    return max(interval_s - took_s, took_s)


class Looks:
    """`forwarded` is a second client, for requests that brokers forward."""

    def __init__(
        self, client: Client, forwarded: Client, sort: str, pattern: re.Pattern[str] | None
    ) -> None:
        self.sort = sort
        self.pattern = pattern
        self.now: Snapshot | None = None
        self._before: Snapshot | None = None
        self._client, self._forwarded = client, forwarded
        self._failure = ""
        # The order, and the rows of the last look in it.
        self._rows: tuple[str, Rows] | None = None

    async def look(self, wanted: Wanted) -> float:
        """Ask the cluster, and return how long it took."""
        clock = self._client.cluster.world.clock
        began_s = clock.monotonic()
        try:
            seen = await ask(self._client, self._forwarded, wanted)
        except KafkaError as error:
            self._failure = str(error)
        else:
            self._before, self.now, self._failure = self.now, seen, ""
            self._rows = None
        return clock.monotonic() - began_s

    def check(self) -> None:
        """Raise CommandFailed if the last look failed."""
        if self._failure:
            raise CommandFailed(self._failure)

    def rows(self) -> Rows:
        """Return the rows of the last look; they are computed once, as every key draws them."""
        if self.now is None:
            return Rows((), (), ())
        if self._rows is None or self._rows[0] != self.sort:
            rows, pattern = rows_of(self.now, self._before, self.sort), self.pattern
            if pattern is not None:
                topics = [row for row in rows.topics if pattern.search(row.name)]
                rows = Rows(rows.brokers, topics, rows.groups)
            self._rows = self.sort, rows
        return self._rows[1]

    def as_object(self, limit: int) -> dict[str, Any]:
        """Return the last look for JSON; if it failed, an object without rows."""
        at_ms = self._client.cluster.world.clock.now_ms()
        if self.now is None or self._failure:
            failed = Snapshot(0, "", errors=(self._failure,))
            return as_object(failed, Rows((), (), ()), at_ms, limit)
        return as_object(self.now, self.rows(), at_ms, limit)

    def print_text(self, limit: int) -> None:
        """Print the last look, with colours on a terminal."""
        rows = self.rows()
        limits = Limits(len(rows.brokers), limit, limit)
        if sys.stdout.isatty():
            from rich.console import Console

            Console(highlight=False).print(self.screen(View.ALL, limits))
            return
        for line in plain_lines(self._heading(), self._sections(View.ALL, limits), self._error()):
            print(line)
        print(flush=True)

    def screen(self, view: View, limits: Limits, first: int = 0, keys: str = "") -> Group:
        healthy = self.now is not None and not self._failure and is_healthy(self.now)
        return screen(
            self._heading(),
            self._sections(view, limits, first),
            self._error(),
            healthy=healthy,
            keys=keys,
        )

    def _heading(self) -> list[str]:
        clock = time.strftime("%H:%M:%S")
        if self.now is None:
            return [clock, "asking the brokers" if not self._failure else "no broker answered yet"]
        return heading_lines(self.now, clock)

    def _sections(self, view: View, limits: Limits, first: int = 0) -> list[Section]:
        count = (self.now and self.now.group_count) or 0
        return sections(self.rows(), limits, view, count, first)

    def _error(self) -> str:
        if self._failure:
            old = "" if self.now is None else "this is the last answer: "
            return error_line([f"{old}{self._failure}"])
        return error_line(() if self.now is None else self.now.errors)
