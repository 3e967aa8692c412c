"""List, drain and remove the brokers of a cluster (penstock brokers)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import moves, plan_tables
from penstock.cli.confirmation import Yes, confirm
from penstock.cli.output import AsJson, print_json, print_table
from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, with_client

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.rebalance.model import ClusterView, Plan

_CORDONED_LOG_DIRS, _ALL = "cordoned.log.dirs", "*"
# How long a broker may take to apply its cordon; it reports it with its next heartbeat.
_CORDON_TIMEOUT_S = 30.0
_POLL_S = 0.1
# A broker that does not say within this time whether it is cordoned counts as not cordoned.
_READ_TIMEOUT_S = 3.0
# Replicas that were placed on the broker just before its cordon move in a second round.
_ROUNDS = 3

Ids = Annotated[list[int], typer.Argument(metavar="ID...", help="The brokers' ids.")]


def list_command(as_json: AsJson = False, bootstrap_server: BootstrapServer = LOCAL) -> None:
    """List the registered brokers, including fenced and cordoned ones."""

    async def work(client: Client) -> list[dict[str, Any]]:
        cluster = await client.admin.describe_cluster(with_fenced=True)
        live = [broker.id for broker in cluster.brokers if not broker.fenced]
        cordoned = await _cordoned(client, live)
        return [
            {
                "id": broker.id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "state": "fenced"
                if broker.fenced
                else "cordoned"
                if broker.id in cordoned
                else "live",
                "controller": broker.id == cluster.controller_id,
            }
            for broker in sorted(cluster.brokers, key=lambda broker: broker.id)
        ]

    brokers = with_client("brokers list", bootstrap_server, work)
    if as_json:
        print_json(brokers)
        return
    rows = [
        [
            str(broker["id"]),
            f"{broker['host']}:{broker['port']}",
            broker["rack"] or "-",
            broker["state"],
        ]
        for broker in brokers
    ]
    print_table(["ID", "ADDRESS", "RACK", "STATE"], rows)


def drain_command(
    ids: Ids,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the plan; cordon and move nothing.")
    ] = False,
    throttle: moves.Throttle = None,
    concurrent: moves.Concurrent = moves.DEFAULT_CONCURRENT,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the plan as JSON instead of tables.")
    ] = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Cordon brokers and move all their replicas to others, so that they can be removed.

    Run it again after an interruption: it continues.
    """
    names = " ".join(map(str, ids))

    async def work(client: Client) -> bool:
        """Return True if no other broker is live."""
        await _check_registered(client, ids)
        is_last = await _is_last(client, ids)
        if not dry_run:
            if is_last:
                await _check_empty(client, ids)
            await _cordon(client, ids)
        view, plan = await _plan(client, ids)
        if as_json:
            print_json(plan_tables.plan_as_json(view, plan))
        else:
            plan_tables.print_plan(view, plan)
        if not dry_run:
            await _drain(client, ids, view, plan, throttle, concurrent)
        return is_last

    is_last = with_client("brokers drain", bootstrap_server, work)
    if dry_run or as_json:
        return
    drained = f"Drained: brokers {names} have no replicas and get no new ones."
    if is_last:
        print(
            f"{drained} But no other broker is live: when they stop, the cluster serves nobody, "
            "and no topic can be created. Start another broker first."
        )
    else:
        print(f"{drained} It is safe to stop them; then run `penstock brokers remove {names}`.")


def undrain_command(ids: Ids, bootstrap_server: BootstrapServer = LOCAL) -> None:
    """Uncordon brokers, so that they get replicas again."""

    async def work(client: Client) -> None:
        await _check_registered(client, ids)
        await _set_cordon(client, ids, None)
        await _wait_cordoned(client, ids, expected=False)

    with_client("brokers undrain", bootstrap_server, work)
    print(
        f"Brokers {' '.join(map(str, ids))} get new replicas again. `penstock rebalance` plans "
        "moves that fill them."
    )


def remove_command(ids: Ids, yes: Yes = False, bootstrap_server: BootstrapServer = LOCAL) -> None:
    """Remove the registration of stopped brokers that have no replicas."""
    names = " ".join(map(str, ids))
    confirm("brokers remove", f"Remove the registration of brokers {names}?", yes=yes)

    async def work(client: Client) -> None:
        cluster = await client.admin.describe_cluster(with_fenced=True)
        states = {broker.id: broker for broker in cluster.brokers}
        holding = await _holding(client, ids)
        for broker_id in ids:
            if broker_id not in states:
                raise CommandFailed(f"broker {broker_id} is not registered")
            if not states[broker_id].fenced:
                raise CommandFailed(
                    f"broker {broker_id} is running: drain it with `penstock brokers drain "
                    f"{broker_id}`, stop it, and run this command again"
                )
            if holding[broker_id]:
                raise CommandFailed(
                    f"broker {broker_id} still has replicas of {holding[broker_id]:,} partitions: "
                    f"run `penstock brokers drain {broker_id}` first"
                )
        # A new broker with the same id must not be cordoned.
        await _set_cordon(client, ids, None)
        for broker_id in ids:
            await client.admin.unregister_broker(broker_id)

    with_client("brokers remove", bootstrap_server, work)
    print(f"Removed brokers {names}.")


# Draining


async def _plan(client: Client, ids: Collection[int]) -> tuple[ClusterView, Plan]:
    from penstock.client.rebalance.observe import observe
    from penstock.client.rebalance.planner import plan_rebalance

    view = await observe(client, await client.admin.list_partition_reassignments())
    return view, plan_rebalance(view, drain=ids, balance=False)


async def _drain(
    client: Client,
    ids: Collection[int],
    view: ClusterView,
    plan: Plan,
    throttle: int | None,
    concurrent: int,
) -> None:
    """Run plans until no replica is left: topics may have been created during the first one."""
    resume = f"penstock brokers drain {' '.join(map(str, ids))}"
    for _ in range(_ROUNDS):
        if any(plan.after[broker_id].replicas for broker_id in ids):
            raise CommandFailed(f"these replicas cannot move: {'; '.join(plan.problems)}")
        await moves.run_plan(
            client, view, plan, throttle=throttle, concurrent=concurrent, resume=resume
        )
        if not any((await _holding(client, ids)).values()):
            return
        view, plan = await _plan(client, ids)
    raise CommandFailed(f"new replicas keep arriving on the brokers: run `{resume}` again")


async def _holding(client: Client, ids: Collection[int]) -> dict[int, int]:
    """Return the number of partitions with a replica on each broker."""
    holding = dict.fromkeys(ids, 0)
    for topic in await client.admin.describe_topics():
        for partition in topic.partitions:
            for replica in partition.replicas:
                if replica in holding:
                    holding[replica] += 1
    return holding


async def _is_last(client: Client, ids: Collection[int]) -> bool:
    """Return True if no other broker is live."""
    live = {broker.id for broker in (await client.admin.describe_cluster()).brokers}
    return not live - set(ids)


async def _check_empty(client: Client, ids: Collection[int]) -> None:
    """Raise CommandFailed if the last brokers have replicas, before anything is changed."""
    count = sum(
        not set(ids).isdisjoint(partition.replicas)
        for topic in await client.admin.describe_topics()
        for partition in topic.partitions
    )
    if count:
        raise CommandFailed(
            f"no broker but {', '.join(map(str, sorted(ids)))} is live: their replicas have no "
            f"place to go, and {count:,} partitions will be offline when they stop. Start "
            "another broker first. Nothing was changed"
        )


async def _check_registered(client: Client, ids: Collection[int]) -> None:
    brokers = (await client.admin.describe_cluster(with_fenced=True)).brokers
    unknown = sorted(set(ids) - {broker.id for broker in brokers})
    if unknown:
        raise CommandFailed(
            f"broker {unknown[0]} is not registered; `penstock brokers list` lists the brokers"
        )


async def _cordon(client: Client, ids: Collection[int]) -> None:
    """Cordon all log directories. A broker that is down gets no new replicas while others live, and
    applies its cordon when it starts."""
    await _set_cordon(client, ids, _ALL)
    await _wait_cordoned(client, ids, expected=True)


async def _set_cordon(client: Client, ids: Collection[int], value: str | None) -> None:
    from penstock.client.rebalance.throttles import alter_brokers

    await alter_brokers(client.cluster, ids, {_CORDONED_LOG_DIRS: value})


async def _wait_cordoned(client: Client, ids: Collection[int], *, expected: bool) -> None:
    import asyncio

    try:
        async with asyncio.timeout(_CORDON_TIMEOUT_S):
            while True:
                brokers = (await client.admin.describe_cluster()).brokers
                live = {broker.id for broker in brokers} & set(ids)
                cordoned = await _cordoned(client, live)
                if cordoned == (live if expected else set()):
                    return
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise CommandFailed(
            f"the brokers did not apply {_CORDONED_LOG_DIRS} within {_CORDON_TIMEOUT_S:.0f} s: "
            "their log says why; a value in their properties file has to be removed there"
        ) from None


async def _cordoned(client: Client, ids: Collection[int]) -> set[int]:
    """Return those of the live brokers whose log directories are all cordoned."""
    from penstock.client.rebalance.observe import is_cordoned, read_log_dirs

    found = await read_log_dirs(client, sorted(ids), [], _READ_TIMEOUT_S)
    return {broker_id for broker_id, directories in found.items() if is_cordoned(directories)}
