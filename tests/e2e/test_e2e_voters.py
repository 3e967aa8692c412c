"""The voters of a dynamic quorum are replaced one by one under load, until all three controllers
are new machines (KIP-853, issue 16): nothing is lost, and topics can be created at any time."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.cluster.layout import free_ports
from penstock.client.admin.quorum import QuorumInfo
from penstock.client.client import Client
from penstock.world import World
from penstock.world.real import run
from tests.e2e.numbered_load import NumberedLoad, check, read_back
from tests.e2e.penstock_process import COMMAND, READY, PenstockError, first_line

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.more]

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CONTROLLERS = (1, 2, 3, 4, 5, 6)
BROKERS = (101, 102)
PATIENCE_S = 60.0
RECORDS_BETWEEN = 500


class Machines:
    """Controllers 1 to 6 and two brokers, each with a directory and a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = free_ports(len(CONTROLLERS) + len(BROKERS), ())
        self.ports = dict(zip((*CONTROLLERS, *BROKERS), ports, strict=True))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[broker]}" for broker in BROKERS)

    def config(self, node_id: int) -> Path:
        is_broker = node_id in BROKERS
        listener = "PLAINTEXT" if is_broker else "CONTROLLER"
        servers = ",".join(f"127.0.0.1:{self.ports[each]}" for each in CONTROLLERS)
        lines = [
            f"process.roles={'broker' if is_broker else 'controller'}",
            f"node.id={node_id}",
            f"listeners={listener}://127.0.0.1:{self.ports[node_id]}",
            "controller.listener.names=CONTROLLER",
            f"controller.quorum.bootstrap.servers={servers}",
            f"log.dirs={self.directory}/{node_id}/data",
            "offsets.topic.replication.factor=2",
        ]
        path = self.directory / f"{node_id}.properties"
        path.write_text("\n".join([*lines, ""]))
        return path

    def format(self, node_id: int, *flags: str) -> None:
        self.command("format", "-t", CLUSTER_ID, "-c", str(self.config(node_id)), *flags)

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [str(COMMAND), *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        if done.returncode:
            raise PenstockError(f"penstock {' '.join(words)}: {done.stderr}{self.logs()}")
        return done.stdout

    def start(self, node_id: int) -> None:
        with (self.directory / f"{node_id}.log").open("ab") as errors:
            self.processes[node_id] = subprocess.Popen(
                [str(COMMAND), "start", str(self.config(node_id))],
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def wait_ready(self, node_id: int) -> None:
        line = first_line(self.processes[node_id], time.monotonic() + PATIENCE_S)
        if not line.startswith(READY):
            raise PenstockError(f"node {node_id} printed {line!r}{self.logs()}")

    def destroy(self, node_id: int) -> None:
        """Kill a node, and its disk."""
        process = self.processes.pop(node_id)
        process.kill()
        process.communicate()
        shutil.rmtree(self.directory / str(node_id))

    def logs(self) -> str:
        return "".join(
            f"\n{path}:\n{path.read_text(errors='replace')[-1500:]}"
            for path in sorted(self.directory.glob("*.log"))
        )

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()


@contextlib.contextmanager
def machines(directory: Path) -> Iterator[Machines]:
    found = Machines(directory)
    try:
        yield found
    finally:
        found.stop()


def random_directory_id() -> str:
    tool = COMMAND.parent / "kafka-storage.sh"
    done = subprocess.run([str(tool), "random-uuid"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def described(cluster: Machines) -> QuorumInfo:
    async def main(world: World) -> QuorumInfo:
        async with Client(world, cluster.bootstrap, request_timeout_s=PATIENCE_S) as client:
            return await client.admin.describe_quorum()

    return run(main)


def change(cluster: Machines, *words: str, voter: int, is_voter: bool) -> None:
    """Run `penstock quorum` until it succeeds: a controller that is added has to catch up, and the
    leadership may move. A change whose command failed may be committed nevertheless."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            cluster.command("quorum", *words, "--bootstrap-server", cluster.bootstrap)
        except PenstockError:
            if time.monotonic() > deadline:
                raise
        if (voter in [each.id for each in described(cluster).voters]) is is_voter:
            return


def test_all_controllers_are_replaced_one_by_one_under_load(tmp_path: Path) -> None:
    with machines(tmp_path) as cluster:
        first = ",".join(
            f"{voter}@127.0.0.1:{cluster.ports[voter]}:{random_directory_id()}"
            for voter in (1, 2, 3)
        )
        for voter in (1, 2, 3):
            cluster.format(voter, "--initial-controllers", first)
            cluster.start(voter)
        for broker in BROKERS:
            cluster.format(broker)
            cluster.start(broker)
        for broker in BROKERS:
            cluster.wait_ready(broker)
        with NumberedLoad(cluster.bootstrap, "load") as load:
            load.start(factor=2)
            for old, new in ((1, 4), (2, 5), (3, 6)):
                load.wait_acknowledged(RECORDS_BETWEEN)
                cluster.format(new, "--no-initial-controllers")
                cluster.start(new)
                cluster.wait_ready(new)
                config = str(cluster.config(new))
                change(cluster, "add", "-c", config, voter=new, is_voter=True)
                change(cluster, "remove", str(old), "--yes", voter=old, is_voter=False)
                cluster.destroy(old)
                cluster.command(
                    "topics",
                    "create",
                    f"without-{old}",
                    "--replication-factor",
                    "2",
                    "--bootstrap-server",
                    cluster.bootstrap,
                )
            load.wait_acknowledged(RECORDS_BETWEEN)
            sent = load.finish()
            check(load, sent, read_back(cluster.bootstrap, "load", sent))
        quorum = described(cluster)
        assert sorted(voter.id for voter in quorum.voters) == [4, 5, 6]
        assert quorum.leader_id in (4, 5, 6)
        names = cluster.command("topics", "list", "--bootstrap-server", cluster.bootstrap)
        assert {"without-1", "without-2", "without-3"} <= set(names.split())
