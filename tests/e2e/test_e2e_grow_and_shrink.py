"""Three brokers grow to ten and shrink to four under load, with cancelled and resumed moves.

The drill runs with PENSTOCK_GROW_AND_SHRINK=1 (tools/drill.py). Otherwise the same steps run with
fewer brokers and records.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.client import Client
from tests.e2e.penstock_cluster import PATIENCE_S, PenstockCluster, wait_for
from tests.e2e.penstock_process import running
from tests.e2e.spread_load import SpreadLoad, read_back

pytestmark = [pytest.mark.more, pytest.mark.xdist_group("cluster")]

DRILL = bool(os.environ.get("PENSTOCK_GROW_AND_SHRINK"))
MOST, LEAST = (10, 4) if DRILL else (5, 3)
PARTITIONS, FIRST_RECORDS = (90, 200_000) if DRILL else (30, 30_000)
VALUE_BYTES = 1_000
# So low that the moves can be interrupted: a throttle lets ten times this pass at once.
THROTTLE = "1000000" if DRILL else "200000"
# The operator's commands move hundreds of megabytes on a busy machine.
MOVE_TIMEOUT_S = 900.0
INTERRUPTED = 130


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PenstockCluster]:
    settings = ("offsets.topic.num.partitions=10",)
    with running(PenstockCluster(tmp_path, *settings, brokers=3)) as three_brokers:
        yield three_brokers


def run(cluster: PenstockCluster, *words: str) -> str:
    done = subprocess.run(
        command(cluster, *words),
        capture_output=True,
        text=True,
        timeout=MOVE_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr} {cluster.logs()}"
    return done.stdout


def command(cluster: PenstockCluster, *words: str) -> list[str]:
    return [str(cluster.penstock), *words, "--bootstrap-server", cluster.bootstrap]


def moves_in_progress(cluster: PenstockCluster) -> int:
    async def work(client: Client) -> int:
        return len(await client.admin.list_partition_reassignments())

    return cluster.ask(work)


def interrupt(cluster: PenstockCluster, *words: str) -> str:
    """Run a command, interrupt it in the middle of its moves, and return what it printed."""
    process = subprocess.Popen(
        command(cluster, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: moves_in_progress(cluster), lambda moves: moves > 0, "a move")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == INTERRUPTED, (out, err)
    return err


def plan(cluster: PenstockCluster) -> dict[str, Any]:
    planned: dict[str, Any] = json.loads(run(cluster, "rebalance", "--json"))
    return planned


def assert_balanced(cluster: PenstockCluster, brokers: int) -> str:
    """Assert that replicas, leaders and bytes of these brokers are within 10 percent of their
    means, and that the others have nothing."""
    loads = {broker["id"]: broker["before"] for broker in plan(cluster)["brokers"]}
    spreads = []
    for what in ("replicas", "leaders", "bytes"):
        values = [loads[broker][what] for broker in range(1, brokers + 1)]
        mean = sum(values) / brokers
        worst = max(abs(value - mean) for value in values)
        # A count that is next to the mean cannot be nearer.
        assert worst <= max(0.1 * mean, 1 if what != "bytes" else 0), (what, values)
        spreads.append(f"{what} {100 * worst / mean:.1f} %")
    assert all(
        load == {"replicas": 0, "leaders": 0, "bytes": 0}
        for broker, load in loads.items()
        if broker > brokers
    )
    return ", ".join(spreads)


def rebalance(cluster: PenstockCluster, brokers: int) -> str:
    """Balance the cluster. A broker that is slow for a moment loses its leaderships, and records
    arrive meanwhile; then the next plan brings the rest."""
    for _ in range(2):
        run(cluster, "rebalance", "--execute")
        with contextlib.suppress(AssertionError):
            return assert_balanced(cluster, brokers)
    run(cluster, "rebalance", "--execute")
    return assert_balanced(cluster, brokers)


def test_a_cluster_grows_and_shrinks_under_load(
    cluster: PenstockCluster, record_property: Callable[[str, object], None]
) -> None:
    with SpreadLoad(cluster.bootstrap, "load", PARTITIONS, value_bytes=VALUE_BYTES) as load:
        load.rate = 20_000
        load.start(factor=3)
        load.produce_more(FIRST_RECORDS)
        load.rate = 500
        for _ in range(MOST - 3):
            cluster.nodes("add")
        started = time.monotonic()
        said = interrupt(
            cluster, "rebalance", "--execute", "--throttle", THROTTLE, "--concurrent", "5"
        )
        assert "Continue with `penstock rebalance --execute`" in said
        assert "--cancel" in said
        run(cluster, "rebalance", "--cancel")
        assert moves_in_progress(cluster) == 0
        load.produce_more(100)
        interrupt(cluster, "rebalance", "--execute", "--throttle", THROTTLE, "--concurrent", "5")
        grown = rebalance(cluster, MOST)
        grown_s = time.monotonic() - started
        assert moves_in_progress(cluster) == 0
        load.produce_more(1_000)

        started = time.monotonic()
        leaving = [str(broker) for broker in range(LEAST + 1, MOST + 1)]
        said = interrupt(cluster, "brokers", "drain", *leaving, "--throttle", THROTTLE)
        assert f"Continue with `penstock brokers drain {' '.join(leaving)}`" in said
        assert "safe to stop" in run(cluster, "brokers", "drain", *leaving)
        cluster.nodes("kill", *leaving)
        wait_for(
            lambda: json.loads(run(cluster, "brokers", "list", "--json")),
            lambda brokers: sum(broker["state"] == "fenced" for broker in brokers) == len(leaving),
            "fencing of the drained brokers",
        )
        run(cluster, "brokers", "remove", *leaving, "--yes")
        shrunk = rebalance(cluster, LEAST)
        shrunk_s = time.monotonic() - started
        load.produce_more(1_000)
        sent = load.finish()
    read_back(load, cluster.bootstrap)
    record_property(
        "note",
        f"3 brokers grew to {MOST} in {grown_s:.0f} s ({grown} off the mean at most) and shrank to "
        f"{LEAST} in {shrunk_s:.0f} s ({shrunk}); {sent:,} records of {VALUE_BYTES} bytes, none "
        "lost or twice",
    )
