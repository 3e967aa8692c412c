"""After one of a broker's two log directories fails, its partitions move to other brokers, and
the broker serves those of the other directory."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from penstock.client.client import Client
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running

pytestmark = pytest.mark.xdist_group("cluster")
DIRECTORIES = ("one", "two")


def test_partitions_of_a_failed_directory_move_and_the_broker_serves_the_others(
    tmp_path: Path,
) -> None:
    settings = (
        f"log.dirs={','.join(DIRECTORIES)}",
        "metadata.log.dir=meta",
        "log.segment.bytes=1048576",
    )
    with running(PenstockCluster(tmp_path, *settings)) as cluster:
        cluster.create_topic("placed", [[1, 2, 3]] * 4, min_insync_replicas="2")
        for index in range(4):
            cluster.wait_partition("placed", lambda partition: len(partition.isr) == 3, index=index)
            # A partition has no files before its first record.
            cluster.ask(partial(_fill, index=index))
        home = cluster.directory / "1"
        failing = home / DIRECTORIES[1]
        lost = sorted(int(path.name.rpartition("-")[2]) for path in failing.glob("placed-*"))
        kept = [index for index in range(4) if index not in lost]
        assert lost
        assert kept
        failing.rename(home / "taken-away")
        # As with a failed disk, no file in it can be opened.
        failing.write_text("not a directory")
        for index in lost:
            cluster.ask(partial(_fill, index=index))
            cluster.wait_partition(
                "placed",
                lambda partition: partition.leader in (2, 3) and 1 not in partition.isr,
                index=index,
            )
        for index in kept:
            still = cluster.partition("placed", index)
            assert (still.leader, len(still.isr)) == (1, 3)
            cluster.ask(partial(_fill, index=index))
        assert cluster.list()[0]["state"] == "running"
        assert "two" in cluster.log_of(1)


async def _fill(client: Client, index: int) -> None:
    """Write more than one segment."""
    async with client.producer() as producer:
        for _ in range(3):
            await (await producer.send("placed", bytes(600_000), partition=index))
