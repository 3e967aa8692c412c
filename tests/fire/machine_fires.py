"""Fires of machines: a frozen process, full disks, lost permissions, clocks that jump, and all
nodes killed at once."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

from penstock.client.client import Client
from tests.fire.burn import Cause, Result, burn
from tests.fire.cluster import FireCluster
from tests.fire.doctor import Diagnosis
from tests.fire.operating import restart


def frozen_leader(cluster: FireCluster) -> Result:
    """A leader is stopped for longer than its session, and continues."""
    node = cluster.nodes[1]
    return burn(
        cluster,
        "frozen",
        lambda: node.signal(signal.SIGSTOP),
        lambda: node.signal(signal.SIGCONT),
        (Cause(1, r"event loop was blocked for \d{4,} ms"),),
        (
            Diagnosis(
                "at-min-isr",
                r"heartbeats stopped at [\d:]+; the controller fenced it at [\d:]+: no heartbeat "
                r".*; 10\.77\.0\.1:9092 accepts connections and answers nothing; its process is "
                "paused",
            ),
        ),
        hold_s=8.0,
    )


def full_disk(cluster: FireCluster) -> Result:
    """The disk of a leader's logs is full until space returns and the node is started again."""
    node = cluster.nodes[1]

    def put_out() -> None:
        empty(node.data)
        restart(node)

    return burn(
        cluster,
        "full-disk",
        lambda: fill(node.data),
        put_out,
        (Cause(1, r"log directory .*data is offline: .*No space left on device"),),
        (Diagnosis("at-min-isr", r"log directory \S*/data is offline: .*No space left on device"),),
        until_logged=True,
    )


def full_metadata_disk(cluster: FireCluster) -> Result:
    """The disk of a node's metadata log is full."""
    node = cluster.nodes[1]

    def light() -> None:
        fill(node.meta)
        # More for the metadata log than fits into its last page.
        cluster.create_topic("fire-metadata-written", 60, wait=False)

    def put_out() -> None:
        empty(node.meta)
        restart(node)

    return burn(
        cluster,
        "full-metadata-disk",
        light,
        put_out,
        (Cause(1, r"No space left on device"),),
        (Diagnosis("at-min-isr", r"log directory \S*/meta is offline: .*No space left on device"),),
        hold_s=4.0,
        until_logged=True,
    )


def no_permission(cluster: FireCluster) -> Result:
    """The directory of a leader's logs loses its permissions, and it has to create a log."""
    node, topic = cluster.nodes[1], "fire-no-permission-to-create"
    cluster.create_topic(topic, 1)

    async def write(client: Client) -> None:
        async with client.producer() as producer:
            await (await producer.send(topic, b"first", partition=0))

    def light() -> None:
        node.data.chmod(0)
        cluster.ask(write)

    def put_out() -> None:
        node.data.chmod(0o755)
        restart(node)

    return burn(
        cluster,
        "no-permission",
        light,
        put_out,
        (Cause(1, r"log directory .*data is offline: .*Permission denied"),),
        (Diagnosis("at-min-isr", r"log directory \S*/data is offline: .*Permission denied"),),
        until_logged=True,
    )


def clock_jumps(cluster: FireCluster) -> Result:
    """The clocks of two nodes jump by an hour, forwards and backwards, and return."""

    def set_clocks(first: str, second: str) -> None:
        cluster.nodes[1].set_clock(first)
        cluster.nodes[2].set_clock(second)

    return burn(
        cluster,
        "clocks",
        lambda: set_clocks("+1h", "-1h"),
        lambda: set_clocks("+0", "+0"),
        (
            Cause(1, r"wall clock jumped forwards by 3\d{3} s"),
            Cause(2, r"wall clock jumped backwards by 3\d{3} s"),
        ),
        (
            Diagnosis("clock-jumped", r"node 1 .* the wall clock jumped forwards by 3\d{3} s"),
            Diagnosis("clock-jumped", r"node 2 .* the wall clock jumped backwards by 3\d{3} s"),
            Diagnosis("clock-differs", r"^the clock of broker 1 is \d+ min ahead of"),
            Diagnosis("clock-differs", r"^the clock of broker 2 is \d+ min behind"),
        ),
        hold_s=4.0,
        until_logged=True,
    )


def all_killed(cluster: FireCluster) -> Result:
    """kill -9 of all nodes at once; then all start."""

    def light() -> None:
        for node in cluster.nodes.values():
            node.signal(signal.SIGKILL)

    def put_out() -> None:
        for node in cluster.nodes.values():
            node.kill()
            node.start()

    causes = tuple(Cause(node_id, r"was not shut down cleanly") for node_id in cluster.nodes)
    findings = (
        Diagnosis(
            "bootstrap-refused",
            "each of them refuses connections; no node of this cluster's directory runs",
        ),
    )
    return burn(cluster, "all-killed", light, put_out, causes, findings, goes_on=False, hold_s=1.0)


def fill(directory: Path) -> None:
    """Write a file until the disk is full."""
    with (directory / "filler").open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def empty(directory: Path) -> None:
    (directory / "filler").unlink()
