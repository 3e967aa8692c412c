"""A leader killed with -9 under load: the next in sync leads, clients go on, and nothing
acknowledged is lost or reordered; the killed broker comes back, catches up, rejoins, and leads
again what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.numbered_load import PARTITIONS, NumberedLoad, check, read_back
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running

pytestmark = pytest.mark.xdist_group("cluster")
TOPIC = "killed"


def test_the_next_in_sync_leads_and_the_killed_broker_rejoins_and_leads_again(
    tmp_path: Path,
) -> None:
    cluster = PenstockCluster(
        tmp_path,
        "leader.imbalance.check.interval.seconds=1",
        "leader.imbalance.per.broker.percentage=0",
    )
    with running(cluster):
        load = NumberedLoad(cluster.bootstrap, TOPIC)
        load.start(3, {"min.insync.replicas": "2"})
        try:
            load.wait_acknowledged(2_000)
            before = cluster.partition(TOPIC)
            victim, heir = before.replicas[:2]
            assert before.leader == victim
            cluster.nodes("kill", str(victim))
            load.wait_acknowledged(2_000)
            after = cluster.wait_partition(
                TOPIC, lambda one: one.leader == heir and victim not in one.isr
            )
            assert after.leader_epoch > before.leader_epoch
            cluster.nodes("restart", str(victim))
            for index in range(PARTITIONS):
                cluster.wait_partition(
                    TOPIC,
                    lambda one: len(one.isr) == 3 and one.leader == one.replicas[0],
                    index=index,
                )
            load.wait_acknowledged(2_000)
        except BaseException:
            load.abandon()
            raise
        sent = load.finish()
        check(load, sent, read_back(cluster.bootstrap, TOPIC, sent))
        _check_copies(cluster)


def _check_copies(cluster: PenstockCluster) -> None:
    """What was truncated and fetched again is what the others have, byte for byte."""
    for index in range(PARTITIONS):
        copies = [
            _bytes_of(cluster.directory / str(node) / "data" / f"{TOPIC}-{index}")
            for node in (1, 2, 3)
        ]
        assert copies[0] == copies[1] == copies[2]


def _bytes_of(partition: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(partition.glob("*.log")))


def test_preferred_leaders_return_when_they_are_asked_for(tmp_path: Path) -> None:
    with running(PenstockCluster(tmp_path, "auto.leader.rebalance.enable=false")) as cluster:
        cluster.create_topic("asked", [[1, 2, 3]])
        cluster.nodes("kill", "1")
        cluster.wait_partition("asked", lambda one: one.leader == 2)
        cluster.nodes("restart", "1")
        cluster.wait_partition("asked", lambda one: len(one.isr) == 3)
        assert cluster.partition("asked").leader == 2
        assert (
            cluster.command("elect-leaders", "--bootstrap-server", cluster.bootstrap)
            == "Elected leaders of asked-0.\n"
        )
        assert cluster.wait_partition("asked", lambda one: one.leader == 1).isr
        assert (
            cluster.command("elect-leaders", "--bootstrap-server", cluster.bootstrap)
            == "No partition needs an election.\n"
        )
