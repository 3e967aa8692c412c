"""Dynamic voters (KIP-853) of simulated controllers, with their files and connections."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from penstock.config.node import NodeConfig
from penstock.controller.brokers.registration import register_broker
from penstock.controller.features import SUPPORTED_FEATURES
from penstock.errors import ErrorCode
from penstock.handlers.describe_quorum import without_directories
from penstock.metadata.image import MetadataImage
from penstock.metadata.snapshot import register_broker_record
from penstock.node.metadata import MetadataView
from penstock.node.quorum.quorum import Quorum
from penstock.protocol.codec import encode_bytes
from penstock.protocol.internal.quorum_state import decode_quorum_state
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest
from penstock.sim.quorum.node import quorum_config
from tests.controller.clusters import broker, context
from tests.node.simulated_quorum import (
    OBSERVER,
    DynamicQuorum,
    SimulatedQuorum,
    setting,
    settings_of,
)

# A snapshot after a few records.
SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": 200,
    "metadata.max.retention.bytes": 0,
}


def run(quorum: SimulatedQuorum, main: object) -> None:
    quorum.simulation.run(main())  # type: ignore[operator] # a coroutine function


def test_first_voters_of_the_checkpoint_elect_a_leader_that_writes_them_to_the_log() -> None:
    quorum = DynamicQuorum(1)

    async def main() -> None:
        quorum.start(1, 2, 3)
        leader = await quorum.active()
        assert leader.kraft_version == 1
        assert leader.voter_set.ids == (1, 2, 3)
        assert leader._log.voter_sets.latest.offset == 2, "after LeaderChange and kraft.version"
        await leader.append(setting("one"))
        for each in quorum.quorums.values():
            await quorum.until(lambda each=each: "one" in settings_of(each))  # type: ignore[misc]
            assert each._log.voter_sets.latest == leader._log.voter_sets.latest

    run(quorum, main)


def test_controller_joins_as_a_voter_and_another_leaves() -> None:
    quorum = DynamicQuorum(2)

    async def main() -> None:
        quorum.start(1, 2, 3, 4)
        leader = await quorum.active()
        await leader.append(setting("one"))
        await quorum.add_eventually(4)
        assert (await quorum.active()).voter_set.ids == (1, 2, 3, 4)
        removed = next(node_id for node_id in (1, 2, 3) if node_id != leader.node_id)
        assert await quorum.remove(removed) is ErrorCode.NONE
        assert removed not in (await quorum.active()).voter_set.ids
        await quorum.until(lambda: removed not in quorum.quorums[removed].voter_set.ids)
        await leader.append(setting("two"))
        await quorum.until(lambda: "two" in settings_of(quorum.quorums[removed]))

    run(quorum, main)


def test_leader_that_removes_itself_resigns_and_another_is_elected() -> None:
    quorum = DynamicQuorum(3)

    async def main() -> None:
        quorum.start(1, 2, 3)
        leader = await quorum.active()
        before = leader.epoch
        assert await quorum.remove(leader.node_id) is ErrorCode.NONE
        await quorum.until(lambda: not leader.is_leader)
        successor = await quorum.active()
        assert successor.node_id != leader.node_id
        assert successor.epoch > before
        await successor.append(setting("one"))
        await quorum.until(lambda: "one" in settings_of(leader))

    run(quorum, main)


@pytest.mark.parametrize("snapshots", [False, True])
def test_all_voters_are_replaced_one_by_one(snapshots: bool) -> None:
    """Issue 16: until all three controllers are new machines; they restart from their own files."""
    quorum = DynamicQuorum(4, SMALL if snapshots else None)

    async def main() -> None:
        quorum.start(1, 2, 3)
        for number in range(5):
            await (await quorum.active()).append(setting(f"first.{number}", 100))
        for old, new in ((1, 4), (2, 5), (3, 6)):
            quorum.start(new)
            await quorum.until(lambda new=new: new in quorum.quorums)  # type: ignore[misc]
            await quorum.add_eventually(new)
            assert await quorum.remove(old) is ErrorCode.NONE
            quorum.kill(old)
            await (await quorum.active()).append(setting(f"after.{old}", 100))
            if snapshots:
                await asyncio.sleep(3)
        assert (await quorum.active()).voter_set.ids == (4, 5, 6)
        for node_id in (4, 5, 6):
            quorum.kill(node_id)
        quorum.start(4, 5, 6)
        leader = await quorum.active()
        assert leader.voter_set.ids == (4, 5, 6)
        assert {"first.0", "after.1", "after.2", "after.3"} <= set(settings_of(leader))

    run(quorum, main)


def test_wiped_voter_is_a_new_voter() -> None:
    """Rule 19: its vote under the old identity is refused; it votes once it is added again."""
    quorum = DynamicQuorum(5)

    async def main() -> None:
        quorum.start(1, 2, 3)
        leader = await quorum.active()
        await leader.append(setting("one"))
        wiped = next(node_id for node_id in (1, 2, 3) if node_id != leader.node_id)
        third = 6 - wiped - leader.node_id
        quorum.replace(wiped)
        await quorum.until(lambda: wiped in quorum.quorums)
        await quorum.until(lambda: "one" in settings_of(quorum.quorums[wiped]))
        assert quorum.voter(wiped).directory_id != leader.voter_set.directory_id(wiped)
        quorum.kill(leader.node_id)
        await asyncio.sleep(20)
        assert not any(each.is_leader for each in quorum.quorums.values()), (
            "one of the three voters is left, and the wiped one is none"
        )
        assert quorum.quorums[third].epoch == leader.epoch, "no vote was granted"
        quorum.start(leader.node_id)
        assert (await quorum.add(wiped)).error_code == ErrorCode.DUPLICATE_VOTER
        assert await quorum.remove(wiped) is ErrorCode.NONE
        await quorum.add_eventually(wiped)
        voters = (await quorum.active()).voter_set
        assert voters.directory_id(wiped) == quorum.voter(wiped).directory_id

    run(quorum, main)


def test_controller_joins_by_itself_with_auto_join() -> None:
    """controller.quorum.auto.join.enable; a wiped voter first removes its old identity."""
    quorum = DynamicQuorum(6, {"controller.quorum.auto.join.enable": True})

    async def main() -> None:
        quorum.start(1, 2, 3, 4)
        await quorum.until(
            lambda: (
                all(each.voter_set.ids == (1, 2, 3, 4) for each in quorum.quorums.values())
                and len(quorum.quorums) == 4
            )
        )
        leader = await quorum.active()
        wiped = next(node_id for node_id in (2, 3) if node_id != leader.node_id)
        quorum.replace(wiped)
        await quorum.until(
            lambda: (
                wiped in quorum.quorums
                and leader.voter_set.directory_id(wiped) == quorum.voter(wiped).directory_id
            )
        )

    run(quorum, main)


def test_single_controller_grows_to_three() -> None:
    quorum = DynamicQuorum(7, voters=(1,))

    async def main() -> None:
        quorum.start(1)
        await (await quorum.active()).append(setting("one"))
        for node_id in (2, 3):
            quorum.start(node_id)
            await quorum.until(lambda node_id=node_id: node_id in quorum.quorums)  # type: ignore[misc]
            await quorum.add_eventually(node_id)
        quorum.kill(1)
        leader = await quorum.active()
        assert leader.node_id in (2, 3)
        assert settings_of(leader) == ["one"]

    run(quorum, main)


def test_controller_formatted_to_join_never_starts_a_quorum() -> None:
    quorum = DynamicQuorum(8)

    async def main() -> None:
        quorum.start(4, 5)
        await asyncio.sleep(30)
        assert all(each.leader_id is None for each in quorum.quorums.values())
        quorum.kill(4)
        quorum.start(4)
        await asyncio.sleep(30)
        assert quorum.quorums[4].leader_id is None, "also after a restart"

    run(quorum, main)


def test_refusals_of_the_leader() -> None:
    quorum = DynamicQuorum(9)

    async def main() -> None:
        quorum.start(1, 2, 3, 4)
        leader = await quorum.active()
        await quorum.until(lambda: 4 in quorum.quorums)
        assert await quorum.remove(9, UUID(int=5)) is ErrorCode.VOTER_NOT_FOUND
        assert await quorum.remove(1, UUID(int=5)) is ErrorCode.VOTER_NOT_FOUND
        assert (await quorum.add(leader.node_id)).error_code == ErrorCode.DUPLICATE_VOTER
        await quorum.add_eventually(4)
        down = [node_id for node_id in (1, 2, 3) if node_id != leader.node_id]
        for node_id in (*down, 4):
            quorum.kill(node_id)
        removing = await quorum.remove(down[0])
        assert removing in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER), (
            "2 of the 3 voters that are left must have it"
        )

    run(quorum, main)


def described(quorum: Quorum) -> object:
    partition = DescribeQuorumRequest.Topic.Partition(partition_index=0)
    topic = DescribeQuorumRequest.Topic(topic_name="__cluster_metadata", partitions=(partition,))
    return quorum.describe_quorum(DescribeQuorumRequest(topics=(topic,)))


def test_describe_quorum_has_directory_ids_and_endpoints() -> None:
    quorum = DynamicQuorum(10)

    async def main() -> None:
        quorum.start(1, 2, 3, 4)
        leader = await quorum.active()
        await quorum.until(lambda: len(leader._raft.state.observers) == 1)  # type: ignore[union-attr] # it leads
        response = described(leader)
        partition = response.topics[0].partitions[0]  # type: ignore[attr-defined]
        assert {
            voter.replica_id: voter.replica_directory_id for voter in partition.current_voters
        } == {number: UUID(int=1000 + number) for number in (1, 2, 3)}
        (observer,) = partition.observers
        assert (observer.replica_id, observer.replica_directory_id) == quorum.voter(4).key
        assert [
            (node.node_id, [(each.name, each.host, each.port) for each in node.listeners])
            for node in response.nodes  # type: ignore[attr-defined]
        ] == [(number, [("CONTROLLER", f"c{number}", 9093)]) for number in (1, 2, 3)]
        older = without_directories(response)  # type: ignore[arg-type]
        assert [voter.replica_id for voter in older.topics[0].partitions[0].current_voters] == [
            1,
            2,
            3,
        ]
        for version in (0, 1):
            assert encode_bytes(older, version), "an older version has no field for the rest"

    run(quorum, main)


def test_static_voters_are_upgraded_to_kraft_version_1() -> None:
    """KIP-853: the voters of the configuration become records of the log, and can then change."""
    quorum = SimulatedQuorum(11)

    async def main() -> None:
        quorum.start(1, 2, 3)
        leader = await quorum.active()
        assert leader.kraft_version == 0
        await quorum.until(lambda: len(leader._raft.state.announced) == 2)  # type: ignore[union-attr] # it leads
        await leader.upgrade_kraft_version(1, validate_only=True)
        assert leader.kraft_version == 0
        await leader.upgrade_kraft_version(1, validate_only=False)
        await leader.append(setting("one"))
        await quorum.until(lambda: all(each.kraft_version == 1 for each in quorum.quorums.values()))
        directories = {
            node_id: each._raft.local.directory_id for node_id, each in quorum.quorums.items()
        }
        assert {voter.id: voter.directory_id for voter in leader.voter_set.voters} == directories
        for node_id in (1, 2, 3):
            quorum.kill(node_id)
        quorum.start(1, 2, 3)
        restarted = await quorum.active()
        assert restarted.kraft_version == 1
        content = quorum.node(restarted.node_id).world.disk.read(
            "/d/__cluster_metadata-0/quorum-state"
        )
        state, version = decode_quorum_state(content)
        assert version == 1
        assert state.voted_directory_id == directories[restarted.node_id]

    run(quorum, main)


class UpgradedQuorum(DynamicQuorum):
    """Voters 1, 2 and 3 and the observer have controller.quorum.voters; the others join later."""

    def config(self, node_id: int) -> NodeConfig:
        if node_id in (4, 5, 6):
            return super().config(node_id)
        first = {voter: self._voters[voter] for voter in (1, 2, 3)}
        listener = f"c{node_id}:9092" if node_id == OBSERVER else None
        return quorum_config(node_id, first, "/d", self._settings, listener=listener)

    def format(self, node_id: int) -> None:
        if node_id in (4, 5, 6):
            super().format(node_id)
        else:
            SimulatedQuorum.format(self, node_id)


@pytest.mark.parametrize("missed", [OBSERVER, 3], ids=["observer", "voter"])
def test_node_that_missed_the_upgrade_follows_voters_that_are_not_in_its_configuration(
    missed: int,
) -> None:
    """Its log has no VotersRecord. Controller 1, which is no voter any more, names the leader."""
    quorum = UpgradedQuorum(13)

    async def main() -> None:
        quorum.start(1, 2, 3, OBSERVER)
        leader = await quorum.active()
        await leader.append(setting("one"))
        await quorum.until(lambda: "one" in settings_of(quorum.quorums[missed]))
        await quorum.until(lambda: len(leader._raft.state.announced) == 2)  # type: ignore[union-attr] # it leads
        quorum.kill(missed)
        await (await quorum.active()).upgrade_kraft_version(1, validate_only=False)
        quorum.start(4, 5, 6)
        await quorum.until(lambda: {4, 5, 6} <= quorum.quorums.keys())
        for new in (4, 5, 6):
            await quorum.add_eventually(new)
        for old in (3, 2, 1):
            await remove_eventually(quorum, old)
        quorum.kill(2)
        leader = await quorum.active()
        assert leader.voter_set.ids == (4, 5, 6)
        await leader.append(setting("two"))
        quorum.start(missed)
        await quorum.until(
            lambda: missed in quorum.quorums and "two" in settings_of(quorum.quorums[missed])
        )
        assert quorum.quorums[missed].voter_set.ids == (4, 5, 6)

    run(quorum, main)


async def remove_eventually(quorum: DynamicQuorum, node_id: int) -> None:
    """Repeat until the leader has committed its last change."""
    async with asyncio.timeout(60):
        while node_id in (await quorum.active()).voter_set.ids:
            await quorum.remove(node_id)
            await asyncio.sleep(0.1)


async def epoch_and_offset(leader: Quorum, broker_id: int) -> tuple[int, int]:
    """Register a broker. Return its broker epoch and the offset of its registration record."""
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id="c",
        incarnation_id=UUID(int=broker_id),
        listeners=(BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="h", port=9092),),
        features=tuple(
            BrokerRegistrationRequest.Feature(
                name=feature.name,
                min_supported_version=feature.first,
                max_supported_version=feature.last,
            )
            for feature in SUPPORTED_FEATURES
        ),
        log_dirs=(UUID(int=5_000 + broker_id),),
    )
    decision = register_broker(
        leader.pending, request, context(), cluster_id="c", has_session=lambda _broker: False
    )
    offset = await leader.append(decision.records, is_atomic=False)
    return decision.response.broker_epoch, offset


def test_broker_epoch_is_the_offset_of_the_registration_after_a_change_of_the_voters() -> None:
    """A broker that has replayed up to its epoch has seen its own registration. The epoch was too
    low by the control records since the last append, and a new broker failed with a KeyError."""
    quorum = DynamicQuorum(2)

    async def main() -> None:
        quorum.start(1, 2, 3, 4)
        leader = await quorum.active()
        await leader.append(setting("one"))
        await quorum.add_eventually(4)
        leader = await quorum.active()
        epoch, offset = await epoch_and_offset(leader, 11)
        assert epoch == offset
        removed = next(node_id for node_id in (1, 2, 3) if node_id != leader.node_id)
        end = leader.log_end_offset
        removing = asyncio.ensure_future(quorum.remove(removed))
        await quorum.until(lambda: leader.log_end_offset > end)
        assert leader.image.offset < leader.log_end_offset - 1, "the voters are not committed yet"
        epoch, offset = await epoch_and_offset(leader, 12)
        assert epoch == offset
        assert await removing is ErrorCode.NONE

    run(quorum, main)


def test_broker_epoch_is_the_offset_of_the_registration_after_a_kraft_version_upgrade() -> None:
    quorum = SimulatedQuorum(11)

    async def main() -> None:
        quorum.start(1, 2, 3)
        leader = await quorum.active()
        await leader.append(setting("one"))
        await quorum.until(lambda: len(leader._raft.state.announced) == 2)  # type: ignore[union-attr] # it leads
        await leader.upgrade_kraft_version(1, validate_only=False)
        epoch, offset = await epoch_and_offset(leader, 11)
        assert epoch == offset

    run(quorum, main)


def test_broker_waits_to_be_unfenced_although_its_registration_is_not_replayed() -> None:
    """It may be unregistered while it starts."""
    quorum = SimulatedQuorum(1)

    async def main() -> None:
        world = quorum.node(1).world
        view = MetadataView(world.clock, quorum.config(1), lambda _leader: False)
        waiting = asyncio.ensure_future(view.wait_unfenced(7))
        image = MetadataImage.empty()
        for registered in ((), (broker(7, fenced=True),), (broker(7),)):
            await asyncio.sleep(1)
            assert not waiting.done()
            view.apply(*image.replay(map(register_broker_record, registered), 5))
            view.notify()
        await waiting

    run(quorum, main)
