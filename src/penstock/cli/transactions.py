"""List, describe, end and abort transactions, and find hanging ones (penstock transactions)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.completion import complete_transactional_ids
from penstock.cli.confirmation import Yes, confirm
from penstock.cli.output import AsJson, print_json, print_line, print_table
from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, fail, with_client
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin.transactions import OpenTransaction, TransactionDescription
    from penstock.client.client import Client

_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
)


def list_command(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"Only this state; may be repeated: {', '.join(_STATES)}.",
        ),
    ] = None,
    longer_than: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Only transactions that are open for a longer time."
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only transactional ids that match this expression."),
    ] = None,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """List the transactional ids of the cluster, and the states of their transactions."""
    unknown = [name for name in state or () if name not in _STATES]
    if unknown:
        fail(
            "transactions list", f"{unknown[0]!r} is not a state: give one of {', '.join(_STATES)}"
        )

    async def work(client: Client) -> list[dict[str, Any]]:
        listed = await client.admin.list_transactions(
            states=state or (),
            longer_than_ms=-1 if longer_than is None else longer_than * 1000,
            pattern=pattern,
        )
        return [
            {
                "transactional_id": listing.transactional_id,
                "coordinator": broker,
                "producer_id": listing.producer_id,
                "state": listing.state,
            }
            for broker, listings in listed.items()
            for listing in listings
        ]

    found = sorted(
        with_client("transactions list", bootstrap_server, work),
        key=lambda listing: listing["transactional_id"],
    )
    _print(["TRANSACTIONAL ID", "COORDINATOR", "PRODUCER", "STATE"], found, as_json=as_json)


def describe_command(
    transactional_id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The transactional id.", autocompletion=complete_transactional_ids
        ),
    ],
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Show the coordinator, the producer, the state and the partitions of a transactional id."""

    async def work(client: Client) -> tuple[TransactionDescription, int]:
        return (
            await client.admin.describe_transaction(transactional_id),
            client.cluster.world.clock.now_ms(),
        )

    described, now_ms = with_client("transactions describe", bootstrap_server, work)
    open_ms = None if described.start_ms is None else max(now_ms - described.start_ms, 0)
    partitions = [str(partition) for partition in sorted(described.partitions)]
    if as_json:
        print_json(
            {
                "transactional_id": transactional_id,
                "coordinator": described.coordinator_id,
                "producer_id": described.producer_id,
                "producer_epoch": described.producer_epoch,
                "state": described.state,
                "timeout_ms": described.timeout_ms,
                "start_ms": described.start_ms,
                "open_ms": open_ms,
                "partitions": partitions,
            }
        )
        return
    since = "" if open_ms is None else f"  open for {open_ms / 1000:g} s"
    print_line(f"transactional id {transactional_id}  {described.state}{since}")
    print(
        f"coordinator {described.coordinator_id}  producer {described.producer_id} epoch "
        f"{described.producer_epoch}  timeout {described.timeout_ms / 1000:g} s"
    )
    for partition in partitions:
        print(partition)


def abort_command(
    transactional_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="Abort the transaction of this transactional id.",
            autocompletion=complete_transactional_ids,
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The topic of a hanging transaction.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Its partition.")
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The offset at which it starts.")
    ] = None,
    yes: Yes = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Abort a transaction.

    With an ID, its coordinator aborts it in all partitions and fences its producer. A hanging
    transaction, which no coordinator knows, is aborted in one partition.
    """
    hanging = (topic, partition, start_offset)
    if (transactional_id is None) == all(part is None for part in hanging) or (
        transactional_id is None and None in hanging
    ):
        fail(
            "transactions abort",
            "give either a transactional id, or --topic, --partition and --start-offset of a "
            "hanging transaction (see penstock transactions find-hanging)",
        )
    aborted = (
        f"producer {transactional_id}"
        if transactional_id is not None
        else f"{topic}-{partition} at offset {start_offset}"
    )
    confirm("transactions abort", f"Abort the transaction of {aborted}?", yes=yes)

    async def work(client: Client) -> str:
        if transactional_id is not None:
            # InitProducerId would create an unknown transactional id.
            await client.admin.describe_transaction(transactional_id)
            await client.admin.fence_producers([transactional_id])
            return f"Aborted the transaction of {transactional_id} and fenced its producer."
        where = TopicPartition(topic or "", partition or 0)
        spec = await client.admin.open_transaction_at(where, start_offset or 0)
        if spec is None:
            raise CommandFailed(f"no open transaction of {where} starts at offset {start_offset}")
        await client.admin.abort_transaction(spec)
        return f"Aborted the transaction of producer {spec.producer_id} in {where}."

    print(with_client("transactions abort", bootstrap_server, work))


def end_command(
    sink: Annotated[
        str, typer.Argument(metavar="SINK", help="The sink's name: sinkName, or the query id.")
    ],
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Continue if a transaction was aborted that the last batch needs; its rows are "
            "lost.",
        ),
    ] = False,
    yes: Yes = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """End the open transactions of an exactly-once Spark sink whose query does not come back.

    Those that belong to the last written batch are committed, all others aborted. A query that is
    still running fails. It may be started again.
    """
    command = "transactions end"
    confirm(command, f"End the open transactions of sink {sink}?", yes=yes)
    try:
        import pyspark  # noqa: F401 - checks that it is installed
    except ImportError:
        fail(command, "PySpark is not installed: run pip install 'penstock[spark]'")
    from penstock.spark.options import OptionError, sink_options
    from penstock.spark.options.sink import check_name
    from penstock.spark.sink.decision import SinkError
    from penstock.spark.sink.settling import Settlement, settle

    try:
        check_name("SINK", sink)
        options = sink_options({"kafka.bootstrap.servers": bootstrap_server})
    except OptionError as error:
        fail(command, str(error))

    async def work(client: Client) -> Settlement:
        try:
            return await settle(client, options, sink, accept_loss=accept_loss)
        except SinkError as error:
            raise CommandFailed(str(error)) from error

    settled = with_client(command, bootstrap_server, work)
    lost = f", {settled.lost} lost" if settled.lost else ""
    print(f"Sink {sink}: {settled.committed} committed, {settled.aborted} aborted{lost}.")


def find_hanging_command(
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Search this topic. Default: all topics.")
    ] = None,
    older_than: Annotated[
        int,
        typer.Option(
            min=0, metavar="MINUTES", help="Only transactions without a write for this time."
        ),
    ] = 15,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Find open transactions that no coordinator will end, and that block read_committed."""

    async def work(client: Client) -> tuple[list[OpenTransaction], int]:
        searched = [
            TopicPartition(info.name, partition.index)
            for info in await client.admin.describe_topics(None if topic is None else [topic])
            for partition in info.partitions
        ]
        found = await client.admin.find_hanging_transactions(searched, max_timeout_min=older_than)
        return found, client.cluster.world.clock.now_ms()

    hanging, now_ms = with_client("transactions find-hanging", bootstrap_server, work)
    rows = [
        {
            "topic": found.partition.topic,
            "partition": found.partition.partition,
            "start_offset": found.producer.transaction_start_offset,
            "producer_id": found.producer.producer_id,
            "producer_epoch": found.producer.producer_epoch,
            "idle_min": max(now_ms - found.producer.last_timestamp, 0) // 60_000,
        }
        for found in hanging
    ]
    _print(
        ["TOPIC", "PARTITION", "START OFFSET", "PRODUCER", "EPOCH", "IDLE MIN"],
        rows,
        as_json=as_json,
    )


def _print(heading: list[str], rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    print_table(heading, [[str(cell) for cell in row.values()] for row in rows])
