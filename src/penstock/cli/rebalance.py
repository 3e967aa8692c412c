"""Balance replicas, leaders and bytes over the brokers (penstock rebalance)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import moves, plan_tables
from penstock.cli.output import print_json
from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, fail, with_client

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.rebalance.model import ClusterView, Plan

_RESUME = "penstock rebalance --execute"
_WATCH = "penstock rebalance --watch"
_DONE = "Done: the moves are complete and their throttles are removed."
_WATCH_INTERVAL_S = 60.0
# Consecutive looks at an unbalanced cluster before --watch moves anything: a topic that was just
# created or a broker that restarts is no reason.
_LOOKS = 3


def rebalance_command(
    execute: Annotated[
        bool, typer.Option("--execute", help="Run the plan. Default: only show it.")
    ] = False,
    cancel: Annotated[
        bool,
        typer.Option("--cancel", help="Cancel all moves in progress and remove their throttles."),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep the cluster balanced until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", min=0.1, metavar="SECONDS", help="Time between two looks of --watch."
        ),
    ] = _WATCH_INTERVAL_S,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            min=1,
            max=90,
            metavar="PERCENT",
            help="Deviation from the mean at which a broker counts as unbalanced.",
        ),
    ] = 10.0,
    throttle: moves.Throttle = None,
    concurrent: moves.Concurrent = moves.DEFAULT_CONCURRENT,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the plan as JSON instead of tables.")
    ] = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Plan, and with --execute run, the moves that balance the cluster.

    The plan balances replicas, leaders and bytes of all live brokers that are not cordoned, and
    keeps partitions in as many racks as they are in.
    """
    if execute + cancel + watch > 1:
        fail("rebalance", "give only one of --execute, --cancel and --watch")

    async def work(client: Client) -> None:
        if cancel:
            await _cancel(client)
            return
        if watch:
            await _watch(client, interval, tolerance / 100, throttle, concurrent)
            return
        view, plan = await _plan(client, tolerance / 100)
        if as_json:
            print_json(plan_tables.plan_as_json(view, plan))
        else:
            plan_tables.print_plan(view, plan)
        if execute:
            await moves.run_plan(
                client, view, plan, throttle=throttle, concurrent=concurrent, resume=_RESUME
            )
            if not as_json:
                print(_DONE)
        elif not as_json:
            await _say_next(client, plan)

    with_client("rebalance", bootstrap_server, work)


async def _plan(client: Client, tolerance: float) -> tuple[ClusterView, Plan]:
    from penstock.client.rebalance.observe import observe
    from penstock.client.rebalance.planner import plan_rebalance

    view = await observe(client, await client.admin.list_partition_reassignments())
    return view, plan_rebalance(view, tolerance=tolerance)


async def _say_next(client: Client, plan: Plan) -> None:
    ongoing = await client.admin.list_partition_reassignments()
    if ongoing:
        print(
            f"{len(ongoing):,} moves are in progress, and count as complete above. Continue with "
            f"`{_RESUME}`, or undo them with `penstock rebalance --cancel`."
        )
    elif plan.moves or plan.elections:
        print(f"Run it with `{_RESUME}`.")


async def _cancel(client: Client) -> None:
    from penstock.client.rebalance.execution import cancel
    from penstock.errors import ErrorCode

    results = await cancel(client)
    failed = {
        partition: error
        for partition, error in results.items()
        if error is not None and error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    }
    if failed:
        raise CommandFailed(
            "; ".join(f"{partition}: {error}" for partition, error in sorted(failed.items()))
        )
    print(
        f"Cancelled {len(results):,} moves and removed their throttles."
        if results
        else "No moves are in progress; throttles are removed."
    )


async def _watch(
    client: Client, interval_s: float, tolerance: float, throttle: int | None, concurrent: int
) -> None:
    """Look at the cluster again and again. A failure, for instance of brokers that restart, is
    reported, and the next look follows."""
    import asyncio

    from penstock.errors import KafkaError

    looks = 0
    while True:
        try:
            view, plan = await _plan(client, tolerance)
            looks = looks + 1 if plan.moves else 0
            if looks >= _LOOKS or await client.admin.list_partition_reassignments():
                looks = 0
                print(plan_tables.summary(plan), flush=True)
                await moves.run_plan(
                    client, view, plan, throttle=throttle, concurrent=concurrent, resume=_WATCH
                )
                print(_DONE, flush=True)
        except (KafkaError, CommandFailed) as error:
            print(f"penstock rebalance: {error}; trying again", file=sys.stderr, flush=True)
        await asyncio.sleep(interval_s)
