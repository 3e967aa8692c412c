"""A leader that was paused answers from before its successor was elected. A lease does not take its
answer for the last decision."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from penstock.client.client import Client
from penstock.spark.options.sink import DECISION_TOPIC
from penstock.spark.shared_client import close_shared_clients
from penstock.spark.sink.decision import Decision
from penstock.spark.sink.decision_log import DecisionLog
from penstock.spark.sink.transactions import driver_id
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running
from tests.spark.exactly_once.sink import QUERY, Sink, small

pytestmark = pytest.mark.more

NAMES = 100
# Less than the brokers' session timeout, after which the paused one is replaced.
REQUEST_TIMEOUT_MS = "2000"
# The request of the lease arrives at the paused leader well within this time.
ARRIVAL_S = 1.0


def test_a_lease_does_not_trust_a_leader_that_was_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier = threading.Event()
    write_barrier = DecisionLog.write_barrier

    async def note_barrier(log: DecisionLog, *arguments: object) -> int:
        barrier.set()
        return await write_barrier(log, *arguments)  # type: ignore[arg-type]

    try:
        with running(PenstockCluster(tmp_path)) as cluster:
            planner, leader = sink_with_another_coordinator(cluster)
            committer = Sink(
                cluster.bootstrap,
                planner.name,
                planner.topic,
                **{"kafka.client.id": "committer", "kafka.request.timeout.ms": REQUEST_TIMEOUT_MS},
            )
            planner.batch(0, small("a"))
            assert planner.lease().decided == committer.lease().decided == Decision(QUERY, 0)
            cluster.nodes("pause", str(leader))
            try:
                # Decided, but the driver dies before Spark's commit log has it.
                committer.batch(1, small("b"))
                monkeypatch.setattr(DecisionLog, "write_barrier", note_barrier)
                with ThreadPoolExecutor(1) as pool:
                    leasing = pool.submit(planner.lease)
                    assert barrier.wait(60)
                    # The planner has not heard of the new leader, and asks the paused one.
                    assert not leasing.done()
                    threading.Event().wait(ARRIVAL_S)
                    cluster.nodes("resume", str(leader))
                    lease = leasing.result(120)
            finally:
                cluster.nodes("resume", str(leader))
            assert lease.decided == Decision(QUERY, 1)
            repeated = planner.write(lease, 1, small("b"))
            assert repeated.drained
            planner.commit(1, repeated)
            assert planner.settled(["a", "b"])
    finally:
        close_shared_clients()


def sink_with_another_coordinator(cluster: PenstockCluster) -> tuple[Sink, int]:
    """Return a sink whose decisions and whose driver are on different brokers, and the leader of
    its decisions. Its topic has no replica on the leader."""

    async def brokers(name: str, client: Client) -> tuple[int, int]:
        partition = DecisionLog(client, name, 10).partition.partition
        (topic,) = await client.cluster.topics([DECISION_TOPIC])
        coordinator = (await client.admin.describe_transaction(driver_id(name))).coordinator_id
        return topic.partition(partition).leader, coordinator

    for number in range(NAMES):
        sink = Sink(
            cluster.bootstrap, f"sink-{number}", f"topic-{number}", **{"kafka.client.id": "planner"}
        )
        sink.lease()
        leader, coordinator = sink.call(partial(brokers, sink.name))
        if leader != coordinator:
            others = [broker for broker in range(1, cluster.brokers + 1) if broker != leader]
            cluster.create_topic(sink.topic, [others])
            return sink, leader
    raise AssertionError(f"{NAMES} sinks have their decisions on their coordinators")
