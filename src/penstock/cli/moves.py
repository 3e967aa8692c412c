"""Runs plans of moves with a progress bar, for penstock rebalance and penstock brokers drain."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.plan_tables import human_bytes, ids_text
from penstock.cli.session import CommandFailed

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.rebalance.execution import Progress, Result
    from penstock.client.rebalance.model import ClusterView, Plan

# Partitions that failed and are listed.
_SHOWN = 20
# After this time without progress, the command prints what the moves wait for.
_STALLED_S = 30.0
# Between two lines of progress if the output is no terminal.
_LINE_S = 5.0

Throttle = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        min=1024,
        metavar="BYTES",
        help="Bytes per second that each broker sends and receives for the moves. Default: no "
        "limit.",
    ),
]
Concurrent = Annotated[
    int,
    typer.Option("--concurrent", min=1, metavar="N", help="Partitions that move at the same time."),
]
DEFAULT_CONCURRENT = 100


async def run_plan(
    client: Client,
    view: ClusterView,
    plan: Plan,
    *,
    throttle: int | None,
    concurrent: int,
    resume: str,
) -> Result:
    """Run a plan and the moves in progress, with a progress bar. `resume` is the command that
    continues after an interruption."""
    from penstock.client.rebalance.execution import Execution, moves_in_progress

    ongoing = await client.admin.list_partition_reassignments()
    with _display() as report:
        execution = Execution(
            client,
            plan,
            moves_in_progress(view, ongoing),
            concurrent_moves=concurrent,
            throttle=throttle,
            report=report,
        )
        try:
            result = await execution.run()
        except asyncio.CancelledError:
            print(
                f"\nInterrupted. The brokers complete the moves that have begun"
                f"{', throttled' if throttle else ''}; no further ones begin. Continue with "
                f"`{resume}`, or undo the moves in progress with `penstock rebalance --cancel`.",
                file=sys.stderr,
            )
            raise
    for partition, error in sorted(result.not_elected.items())[:_SHOWN]:
        print(f"{partition}: its preferred leader was not elected: {error}", file=sys.stderr)
    if result.failed:
        reasons = "; ".join(
            f"{partition}: {error}" for partition, error in sorted(result.failed.items())[:_SHOWN]
        )
        raise CommandFailed(
            f"{len(result.failed)} moves were refused or undone; run the command again for a new "
            f"plan: {reasons}"
        )
    return result


@contextlib.contextmanager
def _display() -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows progress: a bar on a terminal, otherwise lines."""
    stalls = _Stalls()
    if not sys.stderr.isatty():
        yield _Lines(stalls)
        return
    from rich import progress as bars
    from rich.console import Console

    with bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
        bars.TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task("moving", total=None)

        def report(progress: Progress) -> None:
            bar.update(
                task,
                description=f"{progress.moves_done:,} of {progress.moves:,} moves",
                completed=progress.bytes_done,
                total=progress.bytes,
            )
            stalls.report(progress, bar.console.print)

        yield report


class _Lines:
    """Prints progress as lines, and not more often than every few seconds."""

    def __init__(self, stalls: _Stalls) -> None:
        self._stalls = stalls
        self._printed_s = -_LINE_S
        self._last = -1

    def __call__(self, progress: Progress) -> None:
        from time import monotonic

        is_last = progress.moves_done == progress.moves
        now = monotonic()
        if progress.moves_done == self._last or (now - self._printed_s < _LINE_S and not is_last):
            self._stalls.report(progress, lambda text: print(text, file=sys.stderr, flush=True))
            return
        self._printed_s, self._last = now, progress.moves_done
        print(
            f"{progress.moves_done:,} of {progress.moves:,} moves, "
            f"{human_bytes(progress.bytes_done)} of {human_bytes(progress.bytes)}",
            file=sys.stderr,
            flush=True,
        )


class _Stalls:
    """Says once what the moves wait for when nothing changes."""

    def __init__(self) -> None:
        self._told = False

    def report(self, progress: Progress, write: Callable[[str], None]) -> None:
        if progress.unchanged_s < _STALLED_S:
            self._told = False
        elif not self._told and progress.in_flight:
            self._told = True
            brokers = sorted({broker for move in progress.in_flight for broker in move.adding})
            names = ", ".join(str(move.partition) for move in progress.in_flight[:3])
            write(
                f"No progress for {progress.unchanged_s:.0f} s: {len(progress.in_flight):,} moves "
                f"({names}…) wait for brokers {ids_text(brokers)}. Check with `penstock brokers "
                "list` that they are live, and that the throttle is not too low."
            )
