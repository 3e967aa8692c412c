"""The live view of penstock top on a terminal, with its keys."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

from penstock.cli.top.ask import Wanted
from penstock.cli.top.keys import pressed
from penstock.cli.top.looks import Looks, pause_s
from penstock.cli.top.rows import SORTS
from penstock.cli.top.screen import KEYS, Limits, View, limits_for

if TYPE_CHECKING:
    from rich.live import Live as RichLive

# Groups that are asked for before the first look shows how many there are.
_FIRST_GROUPS = 20


class Live:
    """Draws after every look and every key. A key that shows something else wakes the next look."""

    def __init__(self, looks: Looks, interval_s: float, rows: int | None) -> None:
        self._looks = looks
        self._interval_s = interval_s
        self._rows = rows
        self._view = View.ALL
        self._first = 0
        self._quit = asyncio.Event()
        self._wake = asyncio.Event()
        self._screen: RichLive | None = None

    async def run(self) -> None:
        """Show the cluster until q is pressed."""
        from rich.live import Live as RichLive

        loop = asyncio.get_running_loop()
        with RichLive(screen=True, auto_refresh=False) as self._screen, pressed(self.press):
            loop.add_signal_handler(signal.SIGWINCH, self._draw)
            refreshing = asyncio.create_task(self._refresh())
            quitting = asyncio.create_task(self._quit.wait())
            try:
                await asyncio.wait({refreshing, quitting}, return_when=asyncio.FIRST_COMPLETED)
                if refreshing.done():
                    refreshing.result()
            finally:
                loop.remove_signal_handler(signal.SIGWINCH)
                for task in (refreshing, quitting):
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task

    def press(self, key: str) -> None:
        """Do what a key asks for, and draw."""
        page = max(max(self._limits()), 1)
        moves = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page}
        if key == "q":
            self._quit.set()
        elif key in ("tab", "back tab"):
            step = 1 if key == "tab" else -1
            self._show(View((self._view + step) % len(View)))
        elif key in "0123":
            self._show(View(int(key)))
        elif key == "s":
            names = list(SORTS)
            self._looks.sort = names[(names.index(self._looks.sort) + 1) % len(names)]
        elif key in moves and self._view is not View.ALL:
            self._first = max(min(self._first + moves[key], self._count() - 1), 0)
            if self._view is View.GROUPS:
                self._wake.set()
        self._draw()

    async def _refresh(self) -> None:
        while True:
            self._draw()
            self._wake.clear()
            took_s = await self._looks.look(self.wanted())
            self._draw()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s(self._interval_s, took_s)):
                    await self._wake.wait()

    def _show(self, view: View) -> None:
        if view is not self._view:
            self._view, self._first = view, 0
            self._wake.set()

    def wanted(self) -> Wanted:
        """Return what the view needs, and nothing else."""
        view, limits = self._view, self._limits()
        return Wanted(
            partitions=view is not View.GROUPS,
            groups=view in (View.ALL, View.GROUPS),
            first_group=self._first if view is View.GROUPS else 0,
            max_groups=limits.groups if self._looks.now is not None else _FIRST_GROUPS,
            pattern=self._looks.pattern,
        )

    def _limits(self) -> Limits:
        height = 24 if self._screen is None else self._screen.console.size.height
        now = self._looks.now
        brokers, topics, groups = (
            (0, 0, 0) if now is None else (len(now.brokers), len(now.topics), self._group_count())
        )
        limits = limits_for(self._view, height, brokers, topics, groups)
        if self._rows is None:
            return limits
        return Limits(
            limits.brokers, min(limits.topics, self._rows), min(limits.groups, self._rows)
        )

    def _count(self) -> int:
        now = self._looks.now
        if now is None:
            return 1
        counts = {View.BROKERS: len(now.brokers), View.TOPICS: len(now.topics)}
        return counts.get(self._view, self._group_count())

    def _group_count(self) -> int:
        """Return the number of groups, or of rows for them if the last look did not count them."""
        now = self._looks.now
        return _FIRST_GROUPS if now is None or now.group_count is None else now.group_count

    def _draw(self) -> None:
        if self._screen is not None:
            keys = f"{KEYS} ({self._looks.sort})"
            self._screen.update(
                self._looks.screen(self._view, self._limits(), self._first, keys), refresh=True
            )
