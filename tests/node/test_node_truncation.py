"""Truncation of followers over simulated connections; the test is the controller."""

from __future__ import annotations

from penstock.replica.follower import DivergingEpoch
from tests.log.making import batch
from tests.node.replicas import Cluster, run, values


def test_an_unreplicated_tail_is_truncated_at_the_diverging_epoch() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a", "b")
        await cluster.until(lambda: cluster.ends() == [(2, 2)] * 3)
        for number in (2, 3):
            cluster.brokers[number].replication.unfollow(cluster.partition(number))
        cluster.partition(1).append(batch("lost"))
        cluster.partition(1).append(batch("lost too"))
        cluster.controller.change(leader=2)
        cluster.partition(2).append(batch("kept"))
        await cluster.until(lambda: cluster.ends() == [(3, 3)] * 3)
        assert (
            values(cluster.partition(1))
            == values(cluster.partition(2))
            == values(cluster.partition(3))
        )
        assert b"lost" not in values(cluster.partition(1))

    run(main)


def test_an_epoch_without_records_is_no_divergence() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a")
        for leader in (2, 3, 1, 2):
            cluster.controller.change(leader=leader)
        await cluster.produce("b", leader=2)
        assert [end for end, _watermark in cluster.ends()] == [2, 2, 2]

    run(main)


def test_a_truncation_by_the_leader_of_an_earlier_epoch_is_ignored() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a", "b")
        follower = cluster.partition(3)
        truncation = follower.truncate(follower.leader_epoch, DivergingEpoch(1, 0))
        cluster.controller.change(leader=2)
        await truncation
        assert follower.log_end_offset == 2

    run(main)


def test_a_follower_elected_during_a_truncation_leads_after_it() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a", "b")
        for number in (2, 3):
            cluster.brokers[number].replication.unfollow(cluster.partition(number))
        old = cluster.partition(1)
        old.append(batch("lost"))
        cluster.controller.change(leader=2)
        await cluster.until(lambda: old.is_truncating)
        cluster.controller.change(leader=1)
        assert not old.is_leader
        await cluster.until(lambda: old.is_leader)
        assert old.log_end_offset == 2
        await cluster.produce("c")
        assert [end for end, _watermark in cluster.ends()] == [3, 3, 3]

    run(main)


def test_a_follower_below_the_leaders_log_start_restarts_there() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.brokers[3].stop()
        cluster.controller.change(isr=(1, 2))
        for value in "abcd":
            await cluster.produce(value)
        cluster.partition(1).delete_records(3)
        cluster.controller.register(3)
        cluster.make(3)
        await cluster.brokers[3].start()
        await cluster.until(lambda: cluster.isr() == (1, 2, 3))
        assert (cluster.partition(3).log_start_offset, cluster.partition(3).log_end_offset) == (
            3,
            4,
        )
        await cluster.until(lambda: cluster.partition(2).log_start_offset == 3)

    run(main)


def test_a_follower_whose_leader_changes_during_a_truncation_follows_the_new_leader() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.produce("a", "b")
        for number in (2, 3):
            cluster.brokers[number].replication.unfollow(cluster.partition(number))
        old = cluster.partition(1)
        old.append(batch("lost"))
        cluster.controller.change(leader=2)
        await cluster.until(lambda: old.is_truncating)
        cluster.controller.change(leader=3)
        await cluster.produce("c", leader=3)
        assert [end for end, _watermark in cluster.ends()] == [3, 3, 3]

    run(main)


def test_a_follower_that_starts_within_a_batch_of_its_leader_has_the_whole_batch() -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.brokers[3].stop()
        cluster.controller.change(isr=(1, 2))
        await cluster.produce("a", "b", "c")
        cluster.partition(1).delete_records(1)
        cluster.controller.register(3)
        cluster.make(3)
        await cluster.brokers[3].start()
        await cluster.until(lambda: cluster.isr() == (1, 2, 3))
        assert values(cluster.partition(3)) == values(cluster.partition(1))
        await cluster.until(lambda: cluster.partition(3).log_start_offset == 1)

    run(main)
