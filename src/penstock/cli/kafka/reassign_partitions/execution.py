"""--execute, --verify and --cancel of kafka-reassign-partitions.sh."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.cli.kafka.options import Options, Refused
from penstock.cli.kafka.reassign_partitions.assignments import (
    Ongoing,
    current_log_dirs,
    ids_text,
    read_assignments,
    unknown,
)
from penstock.cli.kafka.reassign_partitions.json_files import (
    Reassignment,
    ReassignmentError,
    format_reassignment,
)
from penstock.cli.kafka.reassign_partitions.log_dirs import (
    is_active,
    replica_log_dirs,
    start_moves,
    state_line,
)
from penstock.errors import KafkaError
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.rebalance.throttles import Route

_DEFAULT_TIMEOUT_MS = 10_000
_EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to "
    "override this and create a new partition assignment in addition to the existing one. The "
    "--additional flag can also be used to change the throttle by resubmitting the current "
    "reassignment."
)
_MUST_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
    "throttle is removed."
)

# --execute


async def execute(client: Client, file: Reassignment, options: Options) -> None:
    from penstock.client.rebalance import throttles

    timeout_ms = options.number("timeout")
    rate, log_dir_rate = (
        _rate(options, "throttle"),
        _rate(options, "replica-alter-log-dirs-throttle"),
    )
    proposed = file.checked()
    ongoing = await client.admin.list_partition_reassignments()
    if ongoing and not options.has("additional"):
        raise Refused(_EXISTING)
    live = {broker.id for broker in (await client.admin.describe_cluster()).brokers}
    for broker in sorted({broker for replicas in proposed.values() for broker in replicas}):
        if broker not in live:
            raise ReassignmentError(f"Unknown broker id {broker}")
    described = await read_assignments(client, sorted({name.topic for name in proposed}))
    current = {name: described[name] for name in proposed if name in described}
    missing = [str(name) for name in proposed if name not in described]
    if missing:
        raise unknown(f"Unable to find partition: {', '.join(missing)}")
    print(
        "Current partition replica assignment\n\n"
        f"{format_reassignment(current, await current_log_dirs(client, current))}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    if rate is not None or log_dir_rate is not None:
        print(_MUST_VERIFY)
    if rate is not None:
        routes = _routes(ongoing, proposed, current)
        await throttles.throttle_topics(client.cluster, throttles.topic_throttles(routes))
        await throttles.set_rate(client.cluster, throttles.route_brokers(routes.values()), rate)
        print(f"The inter-broker throttle limit was set to {rate} B/s")
    if log_dir_rate is not None:
        moving = {replica.broker for replica in file.log_dirs}
        await throttles.set_log_dir_rate(client.cluster, moving, log_dir_rate)
        print(f"The replica-alter-dir throttle limit was set to {log_dir_rate} B/s")
    results = await client.admin.alter_partition_reassignments(
        proposed, allow_factor_change=not options.has("disallow-replication-factor-change")
    )
    _raise_errors("Error reassigning partition(s):", results)
    print(
        f"Successfully started partition reassignment{_s(proposed)} for "
        f"{','.join(map(str, sorted(proposed)))}"
    )
    if file.log_dirs:
        await start_moves(
            client, file.log_dirs, _DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms
        )


def _rate(options: Options, name: str) -> int | None:
    """Return a throttle; as in Kafka, a negative one is none."""
    rate = options.number(name)
    return None if rate is None or rate < 0 else rate


def _routes(
    ongoing: Ongoing,
    proposed: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Route]:
    """Return what is copied from where to where, by ongoing and proposed reassignments."""
    from penstock.client.rebalance.throttles import Route

    routes = {
        partition: Route(
            frozenset(reassignment.replicas) - frozenset(reassignment.adding),
            frozenset(reassignment.adding),
        )
        for partition, reassignment in ongoing.items()
    }
    for partition, replicas in proposed.items():
        sources = (
            routes[partition].sources if partition in routes else frozenset(current[partition])
        )
        routes[partition] = Route(sources, frozenset(replicas) - sources)
    return routes


def _raise_errors(heading: str, results: Mapping[TopicPartition, KafkaError | None]) -> None:
    failed = [
        f"{partition}: {error.message}" for partition, error in sorted(results.items()) if error
    ]
    if failed:
        raise Refused("\n".join([heading, *failed]))


# --verify and --cancel


async def verify(client: Client, file: Reassignment, *, preserve_throttles: bool) -> None:
    """Print the state of each partition and replica; remove the throttles if all is done."""
    ongoing = await client.admin.list_partition_reassignments()
    known = set(await client.admin.list_topics())
    topics = {name.topic for name, _replicas in file.partitions if name not in ongoing} & known
    current = await read_assignments(client, sorted(topics)) if topics else {}
    print("Status of partition reassignment:")
    for partition, target in sorted(dict(file.partitions).items()):
        replicas = current.get(partition, ())
        if partition in ongoing:
            print(f"Reassignment of partition {partition} is still in progress.")
        elif list(replicas) == target:
            print(f"Reassignment of partition {partition} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {partition}, but replica set is "
                f"{ids_text(replicas)} rather than {ids_text(target)}."
            )
    found = await replica_log_dirs(client, file.log_dirs)
    print(
        "\n".join(
            state_line(replica, file.log_dirs[replica], found.get(replica))
            for replica in sorted(file.log_dirs)
        )
    )
    if not ongoing and not any(map(is_active, found.values())) and not preserve_throttles:
        await _clear_throttles(client, file)


async def cancel(client: Client, file: Reassignment, options: Options) -> None:
    ongoing = await client.admin.list_partition_reassignments(
        [partition for partition, _replicas in file.partitions]
    )
    if ongoing:
        _raise_errors(
            f"Error cancelling partition reassignment{_s(ongoing)} for:",
            await client.admin.alter_partition_reassignments(dict.fromkeys(ongoing)),
        )
        print(
            f"Successfully cancelled partition reassignment{_s(ongoing)} for: "
            f"{','.join(map(str, sorted(ongoing)))}"
        )
    else:
        print("None of the specified partition reassignments are active.")
    found = await replica_log_dirs(client, file.log_dirs) if file.log_dirs else {}
    moving = {
        replica: directories.current
        for replica, directories in found.items()
        if is_active(directories) and directories.current is not None
    }
    if moving:
        timeout_ms = options.number("timeout")
        await start_moves(client, moving, _DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms)
    else:
        # As in Kafka, without a line break.
        print("None of the specified partition moves are active.", end="")
    if not options.has("preserve-throttles"):
        await _clear_throttles(client, file)


async def _clear_throttles(client: Client, file: Reassignment) -> None:
    """Remove all throttles of the topics of the file, and of all brokers: nothing says which
    brokers an earlier reassignment involved. Controllers do not list the brokers: those of the file
    are left."""
    from penstock.client.cluster import BROKERS
    from penstock.client.rebalance import throttles

    brokers: set[int] = set()
    if client.cluster.endpoint_type == BROKERS:
        brokers = {broker.id for broker in (await client.admin.describe_cluster()).brokers}
    brokers |= {broker for _partition, replicas in file.partitions for broker in replicas}
    print(f"Clearing broker-level throttles on broker{_s(brokers)} {ids_text(sorted(brokers))}")
    await throttles.clear_brokers(client.cluster, brokers)
    topics = sorted({partition.topic for partition, _replicas in file.partitions})
    print(f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}")
    await throttles.clear_topics(client.cluster, topics)


def _s(items: Collection[object]) -> str:
    return "" if len(items) == 1 else "s"
