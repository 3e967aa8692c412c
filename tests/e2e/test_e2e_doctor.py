"""penstock doctor on real clusters of three processes: nothing in a healthy one, and the right
cause of each fault that the tests make."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.cluster import layout
from penstock.client.admin.groups import OffsetAndMetadata
from penstock.client.client import Client
from penstock.client.errors import check
from penstock.ids import TopicPartition
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.e2e.penstock_cluster import PATIENCE_S, PenstockCluster
from tests.e2e.penstock_process import COMMAND, PenstockProcess, running

pytestmark = [pytest.mark.more, pytest.mark.xdist_group("cluster")]
ALL = ([1, 2, 3],) * 3


class Report:
    def __init__(self, code: int, report: dict[str, Any]) -> None:
        self.code = code
        self.unseen = report["unseen"]
        # The disk of the machine that runs the tests may be full.
        self.findings: list[dict[str, Any]] = [
            each for each in report["findings"] if each["code"] not in ("disk-full", "disk-fills")
        ]

    @property
    def codes(self) -> set[str]:
        return {finding["code"] for finding in self.findings}

    def of(self, code: str) -> dict[str, Any]:
        """Return the only finding with a code."""
        (finding,) = (finding for finding in self.findings if finding["code"] == code)
        return finding


def doctor(*words: str, over: str = "0") -> Report:
    began_s = time.monotonic()
    done = subprocess.run(
        [str(COMMAND), "doctor", "--json", "--over", over, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert time.monotonic() - began_s < 30, "doctor took longer than its deadline"
    assert done.stdout, (done.returncode, done.stderr)
    return Report(done.returncode, json.loads(done.stdout))


def until(look: Callable[[], Report], code: str) -> Report:
    """Return the first report that has a finding."""
    deadline_s = time.monotonic() + PATIENCE_S
    report = look()
    while code not in report.codes and time.monotonic() < deadline_s:
        report = look()
    assert code in report.codes, report.findings
    return report


def until_healthy(look: Callable[[], Report]) -> Report:
    """Return the first report without findings, or the last one."""
    deadline_s = time.monotonic() + PATIENCE_S
    report = look()
    while report.findings and time.monotonic() < deadline_s:
        report = look()
    return report


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    """A cluster that tests only look at, or leave as they found it."""
    directory = tmp_path_factory.mktemp("doctor")
    with running(PenstockCluster(directory)) as started:
        started.create_topic("payments", ALL, min_insync_replicas="2")
        for index in range(3):
            started.wait_partition("payments", lambda each: len(each.isr) == 3, index=index)
        yield started


def test_nothing_is_wrong_with_a_healthy_cluster(cluster: PenstockCluster) -> None:
    async def use(client: Client) -> None:
        async with client.producer() as producer:
            for number in range(100):
                await producer.send("payments", b"%d" % number)
            await producer.flush()
        offsets = {TopicPartition("payments", 0): OffsetAndMetadata(0)}
        await client.groups.commit_offsets("reader", offsets)

    cluster.ask(use)
    report = doctor("--dir", str(cluster.directory), over="1")
    assert (report.code, report.findings, report.unseen) == (0, [], [])
    report = doctor("--bootstrap-server", cluster.bootstrap, over="1")
    assert (report.code, report.findings, report.unseen) == (0, [], [])


def test_nothing_is_wrong_with_a_single_broker_for_development(tmp_path: Path) -> None:
    with running(PenstockProcess(tmp_path)) as broker:
        where = ("--dir", str(tmp_path / "data"))
        words = ("--partitions", "1", "--bootstrap-server", broker.bootstrap)
        subprocess.run([str(COMMAND), "topics", "create", "tried", *words], check=True)
        report = doctor(*where)
        assert (report.code, report.findings, report.unseen) == (0, [], [])
    assert doctor(*where).codes == {"bootstrap-refused"}


def test_mistakes_of_topics(cluster: PenstockCluster) -> None:
    cluster.create_topic("single", [[1]], retention_ms="1000000")
    cluster.create_topic("strict", [[1, 2, 3]], min_insync_replicas="3")
    cluster.create_topic("loose", [[1, 2, 3]])
    cluster.create_topic(
        "lossy", [[1, 2, 3]], min_insync_replicas="2", unclean_leader_election_enable="true"
    )
    cluster.create_topic("refuses", [[1, 2]], min_insync_replicas="3")
    report = doctor("--dir", str(cluster.directory))
    assert {finding["code"]: finding["subjects"] for finding in report.findings} == {
        "replication-factor-1": ["topic single"],
        "min-insync-equals-factor": ["topic strict"],
        "min-insync-1": ["topic loose"],
        "unclean-election": ["topic lossy"],
        "min-insync-above-factor": ["topic refuses"],
    }
    assert report.code == 1
    for name in ("single", "strict", "loose", "lossy", "refuses"):
        cluster.command("topics", "delete", name, "--yes", "--bootstrap-server", cluster.bootstrap)


def test_a_topic_that_a_client_created_by_its_name(cluster: PenstockCluster) -> None:
    async def use(client: Client) -> None:
        await client.cluster.topic("oops", create=True)

    cluster.ask(use)
    report = doctor("--dir", str(cluster.directory), "--topic", "oops")
    assert report.codes == {"replication-factor-1", "auto-created-topic"}
    cluster.command("topics", "delete", "oops", "--yes", "--bootstrap-server", cluster.bootstrap)


def test_the_listener_of_a_controller(cluster: PenstockCluster) -> None:
    plan = layout.load(cluster.directory)
    assert plan is not None
    report = doctor("--bootstrap-server", f"127.0.0.1:{plan.nodes[0].controller_port}")
    assert report.codes == {"bootstrap-controller"}


def test_a_rebalance_that_does_not_end(cluster: PenstockCluster) -> None:
    """A member that does not poll does not join again, and the coordinator waits for it."""
    report: list[Report] = []

    async def work(client: Client) -> None:
        async def join(member: str) -> JoinGroupResponse:
            request = JoinGroupRequest(
                group_id="endless",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=60_000,
                member_id=member,
                protocol_type="consumer",
                protocols=(JoinGroupRequest.Protocol(name="range", metadata=b"\0\0"),),
            )
            return await client.groups.coordinators.send(
                "endless",
                lambda each: each.call(request, JoinGroupResponse, max_version=3, timeout_s=60),
            )

        first = await join("")
        sync = SyncGroupRequest(
            group_id="endless",
            generation_id=first.generation_id,
            member_id=first.member_id,
            assignments=(SyncGroupRequest.Assignment(member_id=first.member_id, assignment=b""),),
        )
        synced = await client.groups.coordinators.send(
            "endless", lambda each: each.call(sync, SyncGroupResponse, max_version=3)
        )
        check(synced.error_code, "not synced")
        second = asyncio.create_task(join(""))
        report.append(
            await asyncio.to_thread(
                doctor, "--bootstrap-server", cluster.bootstrap, "--group", "endless", over="1"
            )
        )
        second.cancel()

    cluster.ask(work)
    finding = report[0].of("group-rebalancing")
    assert "it has 2 members" in finding["summary"]


def test_an_advertised_address_that_does_not_resolve(tmp_path: Path) -> None:
    with running(PenstockCluster(tmp_path)) as cluster:
        cluster.create_topic("payments", ALL, min_insync_replicas="2")
        properties = cluster.directory / "3" / "server.properties"
        wrong = "advertised.listeners=PLAINTEXT://broker-3.invalid:9092"
        properties.write_text(f"{properties.read_text()}{wrong}\n")
        cluster.nodes("restart", "3")
        report = doctor("--dir", str(cluster.directory), "--topic", "payments")
        finding = next(
            finding for finding in report.findings if finding["code"].startswith("advertised-")
        )
        assert finding["subjects"] == ["broker 3"]
        assert "broker-3.invalid:9092" in finding["summary"]
        assert "advertised.listeners" in finding["todo"][-1]


def test_what_a_paused_and_a_killed_broker_cause(tmp_path: Path) -> None:
    """The chain of reasons of each fault, from the same cluster."""
    with running(PenstockCluster(tmp_path, "broker.session.timeout.ms=3000")) as cluster:
        cluster.create_topic("payments", ALL, min_insync_replicas="2")
        cluster.create_topic("alone", [[2]])
        for index in range(3):
            cluster.wait_partition("payments", lambda each: len(each.isr) == 3, index=index)
        where = ("--dir", str(cluster.directory))

        cluster.nodes("pause", "3")
        report = until(lambda: doctor(*where, "--topic", "payments"), "broker-fenced")
        finding = report.of("broker-fenced")
        assert "its process is paused (SIGSTOP)" in finding["summary"]
        assert finding["todo"][0] == f"penstock nodes resume 3 --dir {cluster.directory}"
        cluster.nodes("resume", "3")
        for index in range(3):
            cluster.wait_partition("payments", lambda each: len(each.isr) == 3, index=index)

        async def commit_without_a_leader(client: Client) -> None:
            async with client.producer(transactional_id="payer") as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                await producer.send("alone", b"paid")
                await producer.flush()
                await asyncio.to_thread(cluster.nodes, "kill", "2")
                await producer.commit_transaction()

        cluster.ask(commit_without_a_leader)
        report = until(
            lambda: doctor(*where, "--transactional-id", "payer", over="1"),
            "transaction-not-completed",
        )
        stuck = report.of("transaction-not-completed")["summary"]
        assert "stays in PrepareCommit: its markers cannot be written" in stuck
        assert "alone-0: has no leader" in stuck
        report = until(lambda: doctor(*where), "partition-offline")
        assert report.code == 1
        offline = report.of("partition-offline")
        assert offline["subjects"] == ["alone-0"]
        assert "only broker 2 had all records" in offline["summary"]
        assert offline["todo"][0].startswith("penstock nodes restart 2 ")
        behind = until(lambda: doctor(*where, "--topic", "payments"), "at-min-isr").of("at-min-isr")
        assert behind["subjects"] == ["payments-0", "payments-1", "payments-2"]
        assert behind["since"] is not None
        summary = behind["summary"]
        assert (
            "the controller fenced it at " in summary or "the controller fenced broker 2" in summary
        )
        assert "its process does not run" in summary
        assert "refuses connections" in summary
        report = until(lambda: doctor(*where), "voter-silent")
        assert report.of("voter-silent")["subjects"] == ["controller 2"]

        # Without the directory, the same by the protocol alone.
        report = doctor("--bootstrap-server", cluster.bootstrap)
        assert {"at-min-isr", "partition-offline", "broker-fenced"} <= report.codes
        assert "refuses connections" in report.of("at-min-isr")["summary"]

        cluster.nodes("kill", "3")
        report = until(lambda: doctor(*where), "quorum-no-leader")
        assert (
            "2 of 3 controllers do not run: a majority is 2"
            in report.of("quorum-no-leader")["summary"]
        )
        cluster.nodes("restart", "3")
        cluster.nodes("restart", "2")
        for index in range(3):
            cluster.wait_partition("payments", lambda each: len(each.isr) == 3, index=index)
        # The coordinator sends the markers of "payer" again when it learns of the leader.
        report = until_healthy(lambda: doctor(*where, "--topic", "payments"))
        assert (report.code, report.findings) == (0, [])
    stopped = doctor(*where)
    assert stopped.codes == {"bootstrap-refused"}
    assert f"penstock up --dir {cluster.directory}" in stopped.findings[0]["todo"]


def test_a_log_directory_that_failed(tmp_path: Path) -> None:
    settings = ("log.dirs=one,two", "metadata.log.dir=meta", "log.segment.bytes=1048576")
    with running(PenstockCluster(tmp_path, *settings)) as cluster:
        cluster.create_topic("placed", [[1, 2, 3]] * 4, min_insync_replicas="2")

        async def fill(client: Client) -> None:
            async with client.producer() as producer:
                for index in range(4):
                    for _ in range(3):
                        await (await producer.send("placed", bytes(700_000), partition=index))

        for index in range(4):
            cluster.wait_partition("placed", lambda each: len(each.isr) == 3, index=index)
        cluster.ask(fill)
        failing = cluster.directory / "1" / "two"
        assert list(failing.glob("placed-*"))
        failing.rename(cluster.directory / "1" / "taken-away")
        failing.write_text("not a directory")
        cluster.ask(fill)
        report = until(lambda: doctor("--dir", str(cluster.directory)), "log-dir-offline")
        finding = report.of("log-dir-offline")
        assert finding["subjects"] == [f"log directory {failing} of broker 1"]
        assert "restart broker 1" in finding["todo"][0]
        behind = report.of("at-min-isr")
        assert "broker 1's log directory" in behind["summary"]
