"""Damage that no CRC covers: the leader epoch of a batch in the metadata log (rule 20)."""

from __future__ import annotations

import pytest

from penstock.errors import ErrorCode, KafkaError
from tests.node.simulated_quorum import SimulatedQuorum

SEGMENT = "/d/__cluster_metadata-0/00000000000000000000.log"
# The partition leader epoch follows base offset and batch length; bit 1 of its highest byte.
EPOCH_POSITION, BIT = 12, 1


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
