"""Damage that no CRC of Kafka's formats covers: the leader epoch of a batch in the metadata log,
and quorum-state (rule 20)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID
from penstock.log.directory import LogDirectory
from penstock.node.quorum.quorum import Quorum
from penstock.node.quorum.quorum_state_store import QuorumStateStore
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.protocol.internal.quorum_state import QuorumStateData, encode_quorum_state
from penstock.raft.messages import ElectionState
from penstock.raft.voters import VoterSet, VoterSetHistory
from penstock.world.sim import Simulation
from penstock.world.sim.kinds import METADATA_SNAPSHOT
from tests.node.simulated_quorum import RESOURCE, SimulatedQuorum

SEGMENT = "/d/__cluster_metadata-0/00000000000000000000.log"
# The partition leader epoch follows base offset and batch length; bit 1 of its highest byte.
EPOCH_POSITION, BIT = 12, 1
SIGN_BIT = 7


@pytest.mark.parametrize("node_id", [2, 9], ids=["a voter", "an observer"])
def test_a_node_whose_log_has_an_epoch_that_it_never_entered_refuses_to_start(
    node_id: int,
) -> None:
    cluster = SimulatedQuorum(1, {})

    async def main() -> None:
        cluster.start(1, 2, 3, 9)
        leader = await cluster.active()
        await cluster.until(
            lambda: (
                all(
                    quorum.applied_offset == leader.applied_offset
                    for quorum in cluster.quorums.values()
                )
                and len(cluster.quorums) == 4
            )
        )
        epoch = leader.epoch
        cluster.kill(node_id)
        cluster.node(node_id).drive.flip_bit(SEGMENT, EPOCH_POSITION, BIT)
        cluster.start(node_id)
        await cluster.until(lambda: node_id in cluster.errors)
        error = cluster.errors[node_id]
        assert isinstance(error, ExceptionGroup)
        (refusal,) = error.exceptions
        assert isinstance(refusal, KafkaError)
        assert refusal.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "one of them is damaged" in refusal.message
        assert (await cluster.active()).epoch <= epoch + 1

    cluster.simulation.run(main())


@pytest.mark.parametrize(
    ("position", "bit"),
    [(EPOCH_POSITION, SIGN_BIT), (17, 1), (70, 1)],
    ids=["the leader epoch", "the CRC", "a record"],
)
def test_a_node_does_not_start_with_a_committed_record_that_it_could_not_serve(
    position: int, bit: int
) -> None:
    """The damaged batch, the first of the log, is below the committed offset. Without a snapshot
    the node refuses to start."""
    cluster = SimulatedQuorum(1, {})

    async def main() -> None:
        cluster.start(1, 2, 3)
        leader = await cluster.active()
        await asyncio.sleep(8)  # in virtual time: the committed offset is saved meanwhile
        follower = 1 + leader.node_id % 3
        cluster.kill(follower)
        cluster.node(follower).drive.flip_bit(SEGMENT, position, bit)
        cluster.start(follower)
        await cluster.until(lambda: follower in cluster.errors)
        error = cluster.errors[follower]
        assert isinstance(error, ExceptionGroup)
        (refusal,) = error.exceptions
        assert isinstance(refusal, KafkaError)
        assert refusal.code is ErrorCode.KAFKA_STORAGE_ERROR

    cluster.simulation.run(main())


def test_a_damaged_record_below_a_snapshot_is_given_up() -> None:
    """The log starts at the latest snapshot then, and an empty observer gets everything."""
    cluster = SimulatedQuorum(1, {"metadata.log.max.record.bytes.between.snapshots": 1_500})

    async def main() -> None:
        cluster.start(1, 2, 3)
        leader = await cluster.active()
        for number in range(12):
            await leader.append((config_record(number),))
        node_id = leader.node_id
        snapshots = cluster.node(node_id).drive.files(METADATA_SNAPSHOT)
        while not snapshots:
            await asyncio.sleep(0.1)
            snapshots = cluster.node(node_id).drive.files(METADATA_SNAPSHOT)
        for voter in (1, 2, 3):
            cluster.kill(voter)
            cluster.node(voter).drive.flip_bit(SEGMENT, EPOCH_POSITION, SIGN_BIT)
        cluster.start(1, 2, 3, 9)
        await cluster.until(lambda: {1, 2, 3} <= cluster.quorums.keys())
        assert all(cluster.quorums[voter]._log.start_offset > 0 for voter in (1, 2, 3))
        await cluster.active()
        await cluster.until(
            lambda: (
                len(cluster.quorums) == 4
                and all("n11" in settings(quorum) for quorum in cluster.quorums.values())
            )
        )
        assert not cluster.errors

    cluster.simulation.run(main())


def config_record(number: int) -> ConfigRecord:
    return ConfigRecord(
        resource_type=RESOURCE[0], resource_name=RESOURCE[1], name=f"n{number}", value="x" * 100
    )


def settings(quorum: Quorum) -> Mapping[str, str]:
    return quorum.image.configs.get(RESOURCE, {})


def test_every_flipped_bit_of_a_vote_is_found() -> None:
    simulation = Simulation(1)
    node = simulation.node("c1")

    async def main() -> None:
        disk = node.world.disk
        disk.make_dirs("/d")
        store = QuorumStateStore(
            node.world,
            LogDirectory("/d", NO_UUID),
            "/d",
            "a-cluster",
            VoterSetHistory(VoterSet.static((1, 2, 3))),
        )
        await store.save(ElectionState(epoch=5, voted_id=2))
        assert store.read(0) == ElectionState(5, 2)
        for position in range(disk.size("/d/quorum-state")):
            for bit in range(8):
                node.drive.flip_bit("/d/quorum-state", position, bit)
                with pytest.raises(KafkaError) as refused:
                    store.read(0)
                assert refused.value.code in (
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    ErrorCode.INCONSISTENT_CLUSTER_ID,
                )
                node.drive.flip_bit("/d/quorum-state", position, bit)

    simulation.run(node.run(main()))


def test_a_vote_that_kafka_wrote_has_no_checksum() -> None:
    simulation = Simulation(1)
    node = simulation.node("c1")
    kafka_wrote = encode_quorum_state(QuorumStateData(leader_epoch=5, voted_id=2), 0)

    async def main() -> None:
        node.world.disk.make_dirs("/d")
        node.world.disk.replace("/d/quorum-state", kafka_wrote)
        store = QuorumStateStore(
            node.world,
            LogDirectory("/d", NO_UUID),
            "/d",
            "a-cluster",
            VoterSetHistory(VoterSet.static((1, 2, 3))),
        )
        assert store.read(0) == ElectionState(5, 2)

    simulation.run(node.run(main()))
