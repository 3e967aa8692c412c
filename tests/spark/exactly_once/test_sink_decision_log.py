"""The topic with the decisions of exactly-once sinks."""

from __future__ import annotations

from copy import copy

import pytest

import penstock
from penstock.client.admin.admin_client import AdminClient
from penstock.client.client import Client
from penstock.client.offsets import LATEST
from penstock.client.producer.accumulator import ProducerIdAndEpoch
from penstock.ids import TopicPartition
from penstock.records.build import build_batch
from penstock.spark.options import source_options
from penstock.spark.options.sink import DECISION_TOPIC
from penstock.spark.sink import decision_log
from penstock.spark.sink.decision import Decision, PreparedTransaction, SinkError
from penstock.spark.sink.sender import BatchSender
from penstock.spark.source.subscription import SubscribedTopics
from tests.spark.exactly_once.brokers import new_sink
from tests.spark.exactly_once.sink import QUERY, Sink, small


def test_no_pattern_subscribes_to_decisions(servers: str, sink: Sink) -> None:
    sink.batch(0, small("a"))
    options = source_options(
        {"kafka.bootstrap.servers": servers, "subscribePattern": ".*"}, streaming=False
    )
    subscribed = SubscribedTopics(options.subscription, 0)
    topics = {
        topic.name
        for topic in sink.call(lambda client: subscribed.topics(client, allow_missing=False))
    }
    assert sink.topic in topics
    assert DECISION_TOPIC not in topics


def test_lease_does_not_trust_the_end_offset_of_a_leader(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was paused answers ListOffsets from before its successor was elected."""
    sink.batch(0, small("a"))
    partition = sink.call(lambda client: _decision_partition(client, sink.name))
    stale = sink.call(lambda client: client.admin.list_offsets({partition: LATEST}))
    # Another process decides, so this one has not read it.
    remembered = {key: copy(read) for key, read in decision_log._read.items()}
    sink.batch(1, small("b"))
    monkeypatch.setattr(decision_log, "_read", remembered)

    async def list_stale(*_arguments: object) -> object:
        return stale

    monkeypatch.setattr(AdminClient, "list_offsets", list_stale)
    assert sink.lease().decided == Decision(QUERY, 1)


async def _decision_partition(client: Client, sink: str) -> TopicPartition:
    return decision_log.DecisionLog(client, sink, 10).partition


def test_null_value_is_no_decision(sink: Sink) -> None:
    sink.batch(0, small("a"))

    async def delete(client: Client) -> None:
        sender = await BatchSender.open(client, sink.options)
        producer_id, epoch = sender.producer
        batch = build_batch(
            [(sink.name.encode(), None, (), 1)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
        )
        await sender.send(decision_log.DecisionLog(client, sink.name, 10).partition, batch)
        await sender.flush()
        await sender.close()

    sink.call(delete)
    assert sink.lease().decided is None
    sink.batch(7, small("b"))
    assert sink.settled(["a", "b"])


def test_decision_of_many_transactions(sink: Sink) -> None:
    lease = sink.lease()
    listed = tuple(
        PreparedTransaction(f"{sink.name}/{number:016x}/0", ProducerIdAndEpoch(number, 1))
        for number in range(20_000)
    )

    async def write(client: Client) -> None:
        log = decision_log.DecisionLog(client, sink.name, 10)
        await log.write(sink.options, Decision(QUERY, 0, None, listed), lease.producer)

    sink.call(write)
    assert sink.lease().decided is None


def test_decision_topic_that_deletes_is_refused() -> None:
    with penstock.Cluster() as cluster:
        sink = new_sink(cluster.bootstrap_servers)
        sink.call(lambda client: client.admin.create_topic(DECISION_TOPIC, partitions=16))
        with pytest.raises(SinkError, match=r"has cleanup\.policy=delete"):
            sink.lease()


@pytest.mark.parametrize(
    ("brokers", "factor", "configs"),
    [
        (1, 1, {}),
        (2, 2, {}),
        (3, 3, {"min.insync.replicas": "2"}),
        (9, 3, {"min.insync.replicas": "2"}),
    ],
)
def test_replicas_of_decisions(brokers: int, factor: int, configs: dict[str, str]) -> None:
    assert decision_log.replication(brokers) == (factor, configs)
