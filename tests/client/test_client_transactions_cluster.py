"""The transactional producer and read_committed consumers on a cluster, with the transaction
protocols of transaction.version 1 and 2."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest

import penstock
from penstock.cli.kafka import features
from penstock.client.admin.groups import OffsetAndMetadata
from penstock.client.client import Client
from penstock.client.consumer.consumer import BEGINNING
from penstock.client.offsets import IsolationLevel
from penstock.client.producer.accumulator import NO_PRODUCER
from penstock.client.producer.transaction_state import FatalTransactionError
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.world import World
from penstock.world.real import run

PARTITIONS = 3
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


@pytest.fixture(scope="module", params=[1, 2], ids=["version 1", "version 2"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    with penstock.Cluster() as cluster:
        if request.param == 1:
            words = ("downgrade", "--feature", "transaction.version=1")
            assert features.run(["--bootstrap-server", cluster.bootstrap_servers, *words]) == 0
        yield cluster.bootstrap_servers


def with_client(bootstrap: str, scenario: Callable[[Client], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        async with Client(world, bootstrap) as client:
            await scenario(client)

    run(main)


async def values(client: Client, topic: str, isolation: IsolationLevel) -> list[bytes | None]:
    """Return all values up to the end that this isolation level sees, partition by partition."""
    found: dict[int, list[bytes | None]] = {index: [] for index in range(PARTITIONS)}
    async with client.consumer(isolation=isolation) as consumer:
        await consumer.assign({TopicPartition(topic, index): BEGINNING for index in found})
        ends = await consumer.end_offsets()
        while any(consumer.positions[partition] < end for partition, end in ends.items()):
            for record in await consumer.poll():
                found[record.partition].append(record.value)
    return [value for listed in found.values() for value in listed]


def test_transactions_are_atomic_over_partitions_and_offsets(bootstrap: str) -> None:
    async def scenario(client: Client) -> None:
        await client.admin.create_topic("atomic", partitions=PARTITIONS)
        async with client.producer(transactional_id="atomic") as producer:
            await producer.init_transactions()
            for number in range(6):
                producer.begin_transaction()
                for index in range(PARTITIONS):
                    await producer.send("atomic", b"%d" % number, partition=index)
                await producer.send_offsets_to_transaction(
                    {TopicPartition("atomic", 0): OffsetAndMetadata(number)}, "atomic-group"
                )
                if number % 2:
                    await producer.flush()
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        assert await values(client, "atomic", COMMITTED) == [b"0", b"2", b"4"] * PARTITIONS
        everything = [b"%d" % number for number in range(6)] * PARTITIONS
        assert await values(client, "atomic", UNCOMMITTED) == everything
        offsets = await client.groups.fetch_offsets("atomic-group", stable=True)
        assert {partition: at.offset for partition, at in offsets.items()} == {
            TopicPartition("atomic", 0): 4
        }

    with_client(bootstrap, scenario)


def test_the_next_producer_fences_a_zombie_and_aborts_its_transaction(bootstrap: str) -> None:
    async def scenario(client: Client) -> None:
        await client.admin.create_topic("fenced", partitions=PARTITIONS)
        async with (
            client.producer(transactional_id="fenced") as zombie,
            client.producer(transactional_id="fenced") as producer,
        ):
            await zombie.init_transactions()
            zombie.begin_transaction()
            await (await zombie.send("fenced", b"zombie", partition=0))
            await producer.init_transactions()
            with pytest.raises(FatalTransactionError) as fenced:
                await zombie.commit_transaction()
            assert fenced.value.code is ErrorCode.PRODUCER_FENCED
            producer.begin_transaction()
            await producer.send("fenced", b"next", partition=0)
            await producer.commit_transaction()
        assert await values(client, "fenced", COMMITTED) == [b"next"]

    with_client(bootstrap, scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_is_completed_by_another_producer(
    bootstrap: str, commit: bool
) -> None:
    topic = f"prepared-{commit}"

    async def scenario(client: Client) -> None:
        await client.admin.create_topic(topic, partitions=PARTITIONS)
        async with client.producer(transactional_id=topic, two_phase_commit=True) as writer:
            assert await writer.init_transactions() == NO_PRODUCER
            writer.begin_transaction()
            await writer.send(topic, b"prepared", partition=0)
            prepared = await writer.prepare_transaction()
        assert await values(client, topic, COMMITTED) == []
        async with client.producer(transactional_id=topic, two_phase_commit=True) as driver:
            driver.resume_transaction(prepared)
            await driver.complete_transaction(prepared if commit else NO_PRODUCER)
        async with client.producer(transactional_id=topic) as last:
            await last.init_transactions()
            last.begin_transaction()
            await last.send(topic, b"last", partition=0)
            await last.commit_transaction()
        expected = [b"prepared", b"last"] if commit else [b"last"]
        assert await values(client, topic, COMMITTED) == expected

    with_client(bootstrap, scenario)
