"""Mixes all faults with clients for a given time, and checks the rules at the end.

    python -m tests.fire.soak DIRECTORY SECONDS SEED

`tools.soak` runs it in a namespace. DIRECTORY gets schedule.jsonl (every fault with its time and
node), the logs of the nodes, summary.json, and the nodes' files if a rule does not hold.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from penstock.client.client import Client
from penstock.ids import TopicPartition
from tests.fire.cluster import NODE_IDS, FireCluster, FireError
from tests.fire.load import Load, read_topic
from tests.fire.operating import Operator
from tests.fire.soak_clients import Group, SparkQuery, Transactions, wait_for
from tests.fire.soak_faults import DAMAGE, FAULTS

PARTITIONS = 3
HEALS_WITHIN_S = 90.0
_PLAIN, _TRANSACTIONS, _MOVED = "soak-plain", "soak-transactions", "soak-moved"


class Soak:
    def __init__(self, directory: Path, seconds: float, seed: int) -> None:
        self._directory, self._seconds, self._seed = directory, seconds, seed
        self._cluster = FireCluster(directory, {"auto.create.topics.enable": "false"}, disk_mb=768)
        self._faults: Counter[str] = Counter()
        self._moves = 0
        self._healed_s: list[float] = []
        self._began = time.monotonic()

    def run(self) -> dict[str, Any]:
        try:
            self._cluster.start()
            summary = self._soak()
        except BaseException:
            self._cluster.network.heal()
            self._cluster.keep(self._directory / "kept")
            raise
        finally:
            self._cluster.close()
        return summary

    def _soak(self) -> dict[str, Any]:
        cluster = self._cluster
        for topic in (_PLAIN, _MOVED):
            cluster.create_topic(topic, PARTITIONS)
        cluster.create_topic(_TRANSACTIONS, Transactions.PARTITIONS)
        self._shrink_moved()
        plain, moved = Load(cluster, _PLAIN, rate=150), Load(cluster, _MOVED, rate=50)
        group = Group(cluster, _PLAIN, PARTITIONS)
        transactions = Transactions(cluster, _TRANSACTIONS)
        spark = SparkQuery(cluster, _PLAIN, self._directory / "spark")
        try:
            with plain, moved:
                group.start()
                transactions.start()
                spark.start()
                plain.wait_more(500)
                while time.monotonic() - self._began < self._seconds:
                    self._one_fault(plain)
                    for client in (plain, moved, group, transactions):
                        client.raise_failure()
                    spark.keep_running()
                    self._progress(plain, transactions)
                plain.finish()
                moved.finish()
                self._wait_read(plain, group)
        finally:
            group.stop()
            transactions.stop()
            spark.kill()
        return self._check(plain, moved, group, transactions, spark)

    # Faults

    def _one_fault(self, load: Load) -> None:
        """Begin a fault, let it last, end it, and wait until everything is in sync."""
        # Its own numbers: how many a fault draws depends on the files of the node.
        rng = random.Random(f"{self._seed}/{sum(self._faults.values())}")
        cluster = self._cluster
        name = rng.choice(sorted(FAULTS))
        node = cluster.nodes[rng.choice(NODE_IDS)]
        hold_s, moves = rng.uniform(2.0, 15.0), rng.random() < 0.3
        self._note(fault=name, node=node.id, hold_s=round(hold_s, 1))
        self._faults[name] += 1
        if moves:
            self._move(rng)
        operator = Operator(node)
        FAULTS[name].light(cluster, node, rng)
        time.sleep(hold_s)
        FAULTS[name].put_out(cluster, node, rng)
        ended = time.monotonic()
        if name == DAMAGE:
            self._repair(operator)
        cluster.wait(cluster.all_in_sync, f"all in sync after {name} at {node.id}", HEALS_WITHIN_S)
        load.wait_more(100, HEALS_WITHIN_S)
        self._healed_s.append(time.monotonic() - ended)
        self._note(healed_s=round(self._healed_s[-1], 1))
        time.sleep(rng.uniform(1.0, 5.0))

    def _repair(self, operator: Operator) -> None:
        """Let the operator follow the node's log until all replicas are in sync."""
        for _ in range(4):
            try:
                self._cluster.wait(self._cluster.all_in_sync, "all in sync", 15.0)
            except FireError:
                operator.follow_log()
            else:
                break
        if operator.actions:
            self._note(actions=operator.actions)

    def _shrink_moved(self) -> None:
        """Leave two replicas per partition, which then move between three brokers."""
        self._reassign([(1, 2), (2, 3), (3, 1)])
        self._cluster.wait(self._is_moved, "the first reassignment")

    def _move(self, rng: random.Random) -> None:
        pairs = [rng.sample(NODE_IDS, 2) for _ in range(PARTITIONS)]
        self._note(reassign=pairs)
        self._reassign(pairs)
        self._moves += 1

    def _reassign(self, replicas: list[Any]) -> None:
        async def work(client: Client) -> None:
            results = await client.admin.alter_partition_reassignments(
                {TopicPartition(_MOVED, index): pair for index, pair in enumerate(replicas)}
            )
            for error in results.values():
                if error is not None:
                    raise error

        self._cluster.ask(work)

    def _is_moved(self) -> bool:
        async def work(client: Client) -> bool:
            return not await client.admin.list_partition_reassignments()

        return self._cluster.ask(work)

    # The end

    def _wait_read(self, plain: Load, group: Group) -> None:
        """Wait until the group has read and committed everything that is acknowledged."""

        def is_read() -> bool:
            group.raise_failure()
            return all(
                (partition, offset) in group.seen
                for partition in range(PARTITIONS)
                for offset in plain.acknowledged[partition]
            )

        wait_for(is_read, "the group reads everything", HEALS_WITHIN_S)

    def _check(
        self,
        plain: Load,
        moved: Load,
        group: Group,
        transactions: Transactions,
        spark: SparkQuery,
    ) -> dict[str, Any]:
        """Check what the loads did not: transactions, offsets, Spark's rows, replicas."""
        cluster = self._cluster
        for client in (group, transactions):
            client.raise_failure()
        cluster.wait(self._is_moved, "the last reassignment", HEALS_WITHIN_S)
        cluster.wait(cluster.all_in_sync, "all in sync at the end", HEALS_WITHIN_S)
        transactions.check(
            read_topic(cluster, _TRANSACTIONS, Transactions.PARTITIONS, committed=True)
        )
        found = read_topic(cluster, _PLAIN, PARTITIONS)
        for partition, offset in group.committed.items():
            assert offset <= len(found[partition]), "a committed offset is above the log end offset"
        rows = spark.finish()
        expected = sorted(int(value) for records in found for value in records.values())
        assert sorted(rows) == expected, (
            f"Spark wrote {len(rows)} rows, {len(set(rows))} different ones; the topic has "
            f"{len(expected)} records"
        )
        compared = self._compare_replicas()
        return {
            "seed": self._seed,
            "seconds": round(time.monotonic() - self._began),
            "faults": dict(sorted(self._faults.items())),
            "reassignments": self._moves,
            "records": plain.count + moved.count,
            "transactions": len(transactions.committed) + len(transactions.aborted),
            "group commits": group.commits,
            "Spark rows": len(rows),
            "Spark restarts": spark.restarts,
            "replicas compared": compared,
            "longest pause of the producer, s": round(plain.longest_pause_s, 1),
            "slowest healing, s": round(max(self._healed_s, default=0.0), 1),
        }

    def _compare_replicas(self) -> int:
        """Stop all nodes and compare the bytes of every replica of a partition (rule 9)."""
        nodes = self._cluster.nodes.values()
        for node in nodes:
            node.stop()
        compared = 0
        partitions = {path.name for node in nodes for path in node.data.glob("soak-*-[0-9]")}
        for name in sorted(partitions):
            copies = [
                b"".join(file.read_bytes() for file in sorted((node.data / name).glob("*.log")))
                for node in nodes
                if (node.data / name).exists()
            ]
            if len(set(copies)) != 1:
                raise FireError(f"the replicas of {name} differ")
            compared += len(copies)
        return compared

    # Records of the run

    def _note(self, **what: Any) -> None:
        entry = {"at_s": round(time.monotonic() - self._began, 1), **what}
        with (self._directory / "schedule.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def _progress(self, plain: Load, transactions: Transactions) -> None:
        passed = time.monotonic() - self._began
        _say(
            f"{passed:6.0f} of {self._seconds:.0f} s: {sum(self._faults.values())} faults, "
            f"{plain.count:,} records, {len(transactions.committed):,} transactions, last healing "
            f"{self._healed_s[-1]:.1f} s"
        )


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - progress of the soak


def main(directory: Path, seconds: float, seed: int) -> int:
    try:
        summary = Soak(directory, seconds, seed).run()
    except BaseException as error:  # noqa: BLE001 - kept with the files of the nodes
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        (directory / "failure.txt").write_text(f"{reason}\n{traceback.format_exc()}")
        _say(f"FAILED: {reason}")
        return 1
    (directory / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
