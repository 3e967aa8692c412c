"""Fires of disks that return other bytes than were written: flipped bits and cuts in every kind of
file of one node (rule 20).

The node leads the partitions that are damaged. A reader gets the right records or an error; after
the operator did what the log says, it gets all of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from tests.fire.burn import Cause, Result, burn
from tests.fire.cluster import OUTSIDE, FireCluster, FireError, FireNode
from tests.fire.damage import Damage
from tests.fire.doctor import Diagnosis
from tests.fire.load import CLIENT, read_topic, read_what_is_there
from tests.fire.operating import Operator

_VICTIM = 1
_MAGIC_AT = 16
# One partition for each kind of file and damage. Nothing protects a transaction index: one that is
# cut shows aborted records to read_committed readers, as in Kafka.
_PARTITION_FILES = (
    ("*.index", Damage.FLIP),
    ("*.index", Damage.CUT),
    ("*.timeindex", Damage.FLIP),
    ("*.timeindex", Damage.CUT),
    ("*.snapshot", Damage.FLIP),
    ("*.snapshot", Damage.CUT),
    ("leader-epoch-checkpoint", Damage.FLIP),
    ("leader-epoch-checkpoint", Damage.CUT),
    ("partition.metadata", Damage.FLIP),
    ("partition.metadata", Damage.CUT),
)
_FLIPPED_SEGMENT, _CUT_SEGMENT, _CUT_TAIL = range(len(_PARTITION_FILES), len(_PARTITION_FILES) + 3)
_PARTITIONS = len(_PARTITION_FILES) + 3


def damaged_partition_files(cluster: FireCluster) -> Result:
    """Every kind of file of a partition: segments, indexes, producer snapshots, leader epochs and
    partition.metadata."""
    topic, rng = "damaged-files", random.Random(1)
    _fill(cluster, topic)

    def damage(node: FireNode) -> None:
        for index, (pattern, how) in enumerate(_PARTITION_FILES):
            how.apply(_first(node.data / f"{topic}-{index}", pattern), rng)
        segment = _first(node.data / f"{topic}-{_FLIPPED_SEGMENT}", "*.log")
        content = bytearray(segment.read_bytes())
        content[_MAGIC_AT] ^= 1
        segment.write_bytes(content)
        Damage.CUT.apply(_first(node.data / f"{topic}-{_CUT_SEGMENT}", "*.log"), rng)
        tail = sorted((node.data / f"{topic}-{_CUT_TAIL}").glob("*.log"))[-1]
        Damage.CUT.apply(tail, rng, tail=True)

    causes = (
        Cause(_VICTIM, rf"{topic}-{_FLIPPED_SEGMENT} is damaged: .*remove the directory"),
        Cause(_VICTIM, rf"{topic}-{_CUT_SEGMENT} is damaged: .*remove the directory"),
        Cause(_VICTIM, rf"partition {topic}-{_CUT_TAIL} is offline: .*not a torn tail"),
    )
    findings = (
        Diagnosis(
            "at-min-isr",
            rf"^{topic}-{_CUT_TAIL} is under-replicated.*; broker 1's log of {topic}-{_CUT_TAIL} "
            "is damaged",
        ),
        Diagnosis("log-damaged", rf"^the log of {topic}-{_FLIPPED_SEGMENT} on broker 1 is damaged"),
        Diagnosis("log-damaged", rf"^the log of {topic}-{_CUT_SEGMENT} on broker 1 is damaged"),
    )
    return _damaged(
        cluster,
        "partition-files",
        damage,
        causes,
        findings,
        clean=True,
        topic=topic,
        unserved=_CUT_TAIL,
    )


def torn_tails(cluster: FireCluster) -> Result:
    """The unsynced ends of segments are damaged while the node is down after kill -9."""
    topic, rng = "damaged-tails", random.Random(2)
    _fill(cluster, topic, rounds=1)

    def damage(node: FireNode) -> None:
        for index in range(_PARTITIONS):
            tail = sorted((node.data / f"{topic}-{index}").glob("*.log"))[-1]
            list(Damage)[index % 2].apply(tail, rng, tail=True)

    causes = (
        Cause(_VICTIM, rf"recovery: .*{topic}-0/.*truncated from"),
        Cause(_VICTIM, rf"recovery: .*{topic}-1/.*truncated from"),
    )
    findings = (
        Diagnosis(
            "log-truncated",
            rf"^node 1 truncated {_PARTITIONS} damaged files .*: truncated from .*; log directory "
            r"\S+ was not shut down cleanly",
        ),
    )
    return _damaged(cluster, "torn-tails", damage, causes, findings, clean=False, topic=topic)


def damaged_checkpoints(how: Damage, cluster: FireCluster) -> Result:
    """The checkpoints of high watermarks, recovery points and log starts."""
    names = ("replication", "recovery-point", "log-start")

    def damage(node: FireNode) -> None:
        for name in names:
            file = node.data / f"{name}-offset-checkpoint"
            content = bytearray(file.read_bytes())
            if how is Damage.FLIP:
                content[0] ^= 1  # the version
            else:
                del content[len(content) // 2 :]
            file.write_bytes(content)

    causes = tuple(
        Cause(_VICTIM, rf"ignoring damaged checkpoint .*{name}-offset-checkpoint") for name in names
    )
    findings = (
        Diagnosis("file-damaged", r"^node 1 found 3 damaged files .*ignoring damaged checkpoint"),
    )
    return _damaged(cluster, f"checkpoints-{how.value}", damage, causes, findings, clean=True)


def damaged_meta_properties(how: Damage, cluster: FireCluster) -> Result:
    """meta.properties of the log directory: the node refuses it."""

    def damage(node: FireNode) -> None:
        file = node.data / "meta.properties"
        content = bytearray(file.read_bytes())
        if how is Damage.FLIP:
            content[content.index(b"version=") + len("version=")] ^= 8
        else:
            del content[len(content) // 3 :]
        file.write_bytes(content)

    causes = (Cause(_VICTIM, r"meta\.properties"),)
    findings = (_ended(r"meta\.properties"),)
    return _damaged(cluster, f"meta-properties-{how.value}", damage, causes, findings, clean=True)


def damaged_quorum_state(how: Damage, cluster: FireCluster) -> Result:
    """quorum-state: the vote of a voter is lost."""
    causes = (Cause(_VICTIM, r"quorum-state: .*The vote of this voter is lost"),)
    damage = partial(_damage_metadata, "quorum-state", how, 3)
    findings = (_ended("The vote of this voter is lost"),)
    return _damaged(cluster, f"quorum-state-{how.value}", damage, causes, findings, clean=False)


def damaged_metadata_log(how: Damage, cluster: FireCluster) -> Result:
    """The metadata log below its committed offset."""
    causes = (
        Cause(_VICTIM, r"__cluster_metadata-0\S* is damaged|__cluster_metadata-0.*truncated"),
    )
    damage = partial(_damage_metadata, "*.log", how, 4)
    # A snapshot replaces what it covers. Without one the node ends.
    line = r"__cluster_metadata-0\S* is damaged|__cluster_metadata-0\S*: truncated"
    findings = (Diagnosis("file-damaged|log-truncated|broker-fenced", line),)
    return _damaged(cluster, f"metadata-log-{how.value}", damage, causes, findings, clean=False)


def damaged_metadata_snapshot(how: Damage, cluster: FireCluster) -> Result:
    """The latest snapshot of the metadata."""
    causes = (Cause(_VICTIM, r"\.checkpoint is damaged: .* It is set aside"),)
    damage = partial(_damage_metadata, "*-*.checkpoint", how, 5)
    findings = (Diagnosis("file-damaged", r"\.checkpoint is damaged: .*It is set aside"),)
    name = f"metadata-snapshot-{how.value}"
    return _damaged(cluster, name, damage, causes, findings, clean=False)


def _ended(line: str) -> Diagnosis:
    """The node refuses to start, and its last log line says why."""
    chain = rf"refuses connections; its process does not run; its last log line was.*{line}"
    return Diagnosis("broker-fenced", chain)


def _damage_metadata(pattern: str, how: Damage, seed: int, node: FireNode) -> None:
    file = sorted((node.meta / "__cluster_metadata-0").glob(pattern))[-1]
    # No CRC covers the first 21 bytes of a batch; the last 64 of a snapshot are behind them.
    how.apply(file, random.Random(seed), tail=file.suffix == ".checkpoint")


def _damaged(
    cluster: FireCluster,
    name: str,
    damage: Callable[[FireNode], None],
    causes: tuple[Cause, ...],
    findings: tuple[Diagnosis, ...],
    *,
    clean: bool,
    topic: str | None = None,
    unserved: int | None = None,
) -> Result:
    """Stop or kill the node, damage files, start it, and let the operator follow its log. The node
    leads all partitions of the topic then, but for one that it cannot serve."""
    node = cluster.nodes[_VICTIM]
    before = _read(cluster, topic)
    operator = Operator(node)

    def light() -> None:
        if clean:
            node.stop()
        else:
            node.kill()
        damage(node)
        node.start()

    def settle() -> None:
        _wait_started(node, operator.start)
        if topic is not None:
            _let_it_lead(cluster, node, topic, unserved)
            _compare(cluster, topic, before)

    result = burn(cluster, name, light, operator.follow_log, causes, findings, settle=settle)
    if _read(cluster, topic) != before:
        raise FireError(f"{topic} has other records than before; {cluster.logs()}")
    return result


def _wait_started(node: FireNode, start: int) -> None:
    """Wait until the node is ready, or ends; `start` is the size of its log before it was
    started."""
    deadline = time.monotonic() + 30.0
    while node.is_running and time.monotonic() < deadline:
        if "ready bootstrap.servers=" in node.log_text(start):
            return
        time.sleep(0.1)


def _let_it_lead(cluster: FireCluster, node: FireNode, topic: str, unserved: int | None) -> None:
    """Wait until the node leads the partitions whose replica it can serve."""

    def leads() -> bool:
        cluster.elect_preferred()
        return all(
            partition.leader == node.id or index == unserved
            for index, partition in enumerate(cluster.partitions(topic))
        )

    cluster.wait(leads, f"{topic}: node {node.id} leads", 60.0)


def _compare(cluster: FireCluster, topic: str, before: list[dict[int, bytes]]) -> None:
    """Assert that a reader of the damaged replicas gets no wrong record."""
    found, _at_end = read_what_is_there(cluster, topic, len(before), committed=True, within_s=5.0)
    for index, records in enumerate(found):
        if not records.items() <= before[index].items():
            raise FireError(f"a reader of {topic}-{index} got records that were never committed")


def _read(cluster: FireCluster, topic: str | None) -> list[dict[int, bytes]]:
    return [] if topic is None else read_topic(cluster, topic, _PARTITIONS, committed=True)


def _fill(cluster: FireCluster, topic: str, rounds: int = 3) -> None:
    """Write transactions, the second of which is aborted; three fill more than a segment."""
    cluster.create_topic(topic, _PARTITIONS, leader=_VICTIM, segment_bytes="1048576")

    def work() -> None:
        producer = Producer(
            {**CLIENT, "bootstrap.servers": cluster.bootstrap, "transactional.id": topic}
        )
        producer.init_transactions(60)
        for number in range(rounds):
            producer.begin_transaction()
            for partition in range(_PARTITIONS):
                for record in range(40):
                    value = b"%d-%d-" % (number, record) + b"x" * 9_200
                    producer.produce(topic, value, partition=partition)
            producer.flush(60)
            if number == 1:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)

    cluster.network.hosts[OUTSIDE].run(work)
    cluster.wait(lambda: cluster.all_in_sync([topic]), f"{topic}: all in sync")


def _first(directory: Path, pattern: str) -> Path:
    """Return the oldest file that is not empty."""
    return next(file for file in sorted(directory.glob(pattern)) if file.stat().st_size)


_ONCE: tuple[Callable[[FireCluster], Result], ...] = (damaged_partition_files, torn_tails)
_BOTH: tuple[Callable[[Damage, FireCluster], Result], ...] = (
    damaged_checkpoints,
    damaged_meta_properties,
    damaged_quorum_state,
    damaged_metadata_log,
    damaged_metadata_snapshot,
)
FIRES: dict[str, Callable[[FireCluster], Result]] = {fire.__name__: fire for fire in _ONCE} | {
    f"{fire.__name__}_{how.value}": partial(fire, how) for fire in _BOTH for how in Damage
}
