"""Shows a plan of moves: as tables, or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.client.rebalance.model import ClusterView, Load, Move, Plan

# Moves that are listed; --json lists all.
_SHOWN = 20


def _stdout() -> Console:
    """Return a console for tables. A pipe gets whole lines, as a terminal has no width then."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=200)


def plan_as_json(view: ClusterView, plan: Plan) -> dict[str, Any]:
    from penstock.client.rebalance.model import rack_loads

    racks = {
        when: rack_loads(view.brokers, loads)
        for when, loads in (("before", plan.before), ("after", plan.after))
    }
    return {
        "moves": [
            {
                "topic": move.partition.topic,
                "partition": move.partition.partition,
                "before": list(move.before),
                "after": list(move.after),
                "bytes": move.bytes,
            }
            for move in plan.moves
        ],
        "replicas": plan.replicas,
        "bytes": plan.bytes,
        "elections": len(plan.elections),
        "brokers": [
            {
                "id": broker.id,
                "rack": broker.rack,
                "state": broker.state,
                "before": asdict(plan.before[broker.id]),
                "after": asdict(plan.after[broker.id]),
            }
            for broker in view.brokers
        ],
        "racks": [
            {
                "rack": rack,
                "before": asdict(racks["before"][rack]),
                "after": asdict(racks["after"][rack]),
            }
            for rack in sorted(racks["before"])
        ],
        "problems": list(plan.problems),
    }


def print_plan(view: ClusterView, plan: Plan) -> None:
    """Print the moves, and the loads of brokers and racks before and after them."""
    from penstock.client.rebalance.model import rack_loads

    console = _stdout()
    copies = sorted((move for move in plan.moves if move.adding), key=lambda m: -m.bytes)
    if copies:
        _print_moves(console, copies)
    names = {broker.id: broker for broker in view.brokers}
    rows: dict[tuple[str, ...], tuple[Load, Load]] = {}
    for broker in sorted(plan.before):
        view_of = names.get(broker)
        state = ("-", "gone") if view_of is None else (view_of.rack or "-", view_of.state)
        rows[str(broker), *state] = plan.before[broker], plan.after[broker]
    _print_loads(console, ["BROKER", "RACK", "STATE"], rows)
    racks = rack_loads(view.brokers, plan.before)
    if len(racks) > 1:
        after = rack_loads(view.brokers, plan.after)
        console.print()
        _print_loads(
            console,
            ["RACK"],
            {(rack or "-",): (racks[rack], after[rack]) for rack in sorted(racks)},
        )
    console.print()
    for problem in plan.problems:
        console.print(f"Problem: {problem}.", highlight=False, markup=False)
    console.print(summary(plan), highlight=False, markup=False)


def summary(plan: Plan) -> str:
    if not plan.moves:
        if plan.elections:
            return (
                f"No replica needs to move; {len(plan.elections):,} preferred leaders do not lead."
            )
        return "Nothing to move."
    reorders = sum(not move.adding for move in plan.moves)
    return (
        f"{plan.replicas:,} replicas of {len(plan.moves) - reorders:,} partitions move: "
        f"{human_bytes(plan.bytes)}. {reorders:,} partitions get another preferred leader without "
        "a move."
    )


def _print_moves(console: Console, moves: list[Move]) -> None:
    from rich.table import Table

    table = Table("PARTITION", "FROM", "TO", "REPLICAS", box=None, pad_edge=False)
    table.add_column("BYTES", justify="right")
    for move in moves[:_SHOWN]:
        table.add_row(
            str(move.partition),
            ids_text(move.removing),
            ids_text(move.adding),
            f"{ids_text(move.before)} → {ids_text(move.after)}",
            human_bytes(move.bytes),
        )
    console.print(table)
    if len(moves) > _SHOWN:
        console.print(
            f"… and {len(moves) - _SHOWN:,} smaller moves (--json lists all)", markup=False
        )
    console.print()


def _print_loads(
    console: Console,
    heading: list[str],
    rows: Mapping[tuple[str, ...], tuple[Load, Load]],
) -> None:
    from rich.table import Table

    table = Table(*heading, box=None, pad_edge=False)
    for column in ("REPLICAS", "LEADERS", "BYTES"):
        table.add_column(column, justify="right")
    for names, (before, after) in rows.items():
        table.add_row(
            *names,
            _change(f"{before.replicas:,}", f"{after.replicas:,}"),
            _change(f"{before.leaders:,}", f"{after.leaders:,}"),
            _change(human_bytes(before.bytes), human_bytes(after.bytes)),
        )
    console.print(table)


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def ids_text(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "-"


def human_bytes(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
