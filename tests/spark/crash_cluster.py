"""The brokers of the crash matrix, and Spark executors on two hosts."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import kafka
from confluent_kafka.admin import AdminClient

from penstock.node.shards.shard_set import positive_hash
from tests.e2e.exactly_once import TRANSACTIONS
from tests.e2e.exactly_once_copy import QUICK
from tests.e2e.penstock_cluster import PenstockCluster
from tests.spark.crash_check import DEADLINE_S
from tests.spark.crash_processes import ROOT, descendants, kill, processes
from tests.spark.standalone import SparkStandalone

_EXECUTOR = "CoarseGrainedExecutorBackend"


def ongoing(bootstrap: str, sink: str) -> list[str]:
    """Return the transactional ids of a sink's open transactions."""
    with closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        return sorted(
            each.transactional_id
            for transactions in admin.list_transactions(state_filters=["Ongoing"]).values()
            for each in transactions
            if each.transactional_id.startswith(f"{sink}/")
        )


class Brokers:
    """Three brokers that a drill kills and freezes."""

    def __init__(self, cluster: PenstockCluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap
        self.ids: Sequence[int] = range(1, cluster.brokers + 1)

    def kill(self, *brokers: int) -> None:
        for broker in brokers:
            self._cluster.nodes("kill", str(broker))

    def pause(self, broker: int) -> None:
        self._cluster.nodes("pause", str(broker))

    def resume(self, broker: int) -> None:
        self._cluster.nodes("resume", str(broker))

    def restart(self, *brokers: int) -> None:
        """Restart the brokers together: none is ready before a majority of them runs."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda broker: self._cluster.nodes("restart", str(broker)), brokers))

    def coordinator(self, transactional_id: str) -> int:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUICK})
        topic = admin.list_topics(TRANSACTIONS, timeout=DEADLINE_S).topics[TRANSACTIONS]
        return int(topic.partitions[positive_hash(transactional_id) % len(topic.partitions)].leader)


EXECUTOR_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
}


class TwoHosts(SparkStandalone):
    """Spark starts a speculative twin only on another host than the first attempt's."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, workers=2)

    def _start(self, name: str, main: str, *arguments: str) -> None:
        host = ("--host", "127.0.0.2") if name == self.directories[1].name else ()
        super()._start(name, main, *host, *arguments)


def kill_executor(python_worker: int) -> None:
    """Kill the executor that runs this Python worker, with SIGKILL."""
    running = {process.id: process for process in processes()}
    process = running[python_worker]
    while _EXECUTOR not in process.command:
        process = running[process.parent]
    kill(process.id)


def executors(standalone: SparkStandalone) -> list[int]:
    """Return the process ids of the cluster's executors, which its workers start."""
    return [
        process.id
        for worker in standalone.worker_ids
        for process in descendants(worker)
        if _EXECUTOR in process.command
    ]
