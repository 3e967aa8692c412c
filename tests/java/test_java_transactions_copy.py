"""An exactly-once copy with the Java client while brokers, coordinators and copiers are killed.

`make drill MINUTES=10 ONLY=exactly-once` runs it for ten minutes.
Run by `make test-java`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.e2e.exactly_once import GROUP, INPUT, Drill
from tests.e2e.exactly_once_records import AUDIT, OUTPUT
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running
from tests.e2e.test_e2e_exactly_once import SECONDS, KilledCluster
from tests.java.kafka_jars import compile_java, fetch_jars

pytestmark = pytest.mark.java

# The partitions of a killed copier are assigned again soon.
SETTINGS = (
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=4000",
    "group.consumer.min.heartbeat.interval.ms=500",
    "group.consumer.heartbeat.interval.ms=500",
)


@pytest.mark.xdist_group("cluster")
def test_a_copy_with_the_java_client_is_exactly_once_while_everything_is_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path = f"{compile_java('ExactlyOnceCopy')}{os.pathsep}{fetch_jars()}/*"

    def command(transactional_id: str) -> Sequence[str]:
        arguments = (cluster.bootstrap, INPUT, OUTPUT, AUDIT, GROUP, transactional_id)
        java = ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path)
        return [*java, "ExactlyOnceCopy", *arguments]

    cluster = PenstockCluster(tmp_path, *SETTINGS)
    with running(cluster), Drill(KilledCluster(cluster), command, tmp_path) as drill:
        drill.run(SECONDS)
        record_property("note", f"exactly-once copy, Java: {drill.finish()}")
