"""An exactly-once copy with confluent-kafka while brokers, the transaction coordinator, the group
coordinator and the copiers are killed (kill -9) in turn.

`make drill MINUTES=10 ONLY=exactly-once` runs it for ten minutes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.exactly_once import GROUP, INPUT, Drill
from tests.e2e.exactly_once_records import (
    AUDIT,
    OUTPUT,
    PARTITIONS,
    Copied,
    Found,
    check_copy,
    check_observed,
)
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running

SECONDS = float(os.environ.get("PENSTOCK_EXACTLY_ONCE_S", "40"))
SETTINGS = ("group.min.session.timeout.ms=1000",)


class KilledCluster:
    """A `PenstockCluster` as the drill uses it."""

    def __init__(self, cluster: PenstockCluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap

    @property
    def nodes(self) -> Sequence[int]:
        return range(1, self._cluster.brokers + 1)

    def kill(self, node: int) -> None:
        self._cluster.nodes("kill", str(node))

    def restart(self, nodes: Sequence[int]) -> None:
        """Restart the nodes together: none is ready before a majority of them runs."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: self._cluster.nodes("restart", str(node)), nodes))

    def logs(self) -> str:
        return self._cluster.logs()


@pytest.mark.more
@pytest.mark.xdist_group("cluster")
def test_a_copy_is_exactly_once_while_everything_is_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    def command(transactional_id: str) -> Sequence[str]:
        arguments = (cluster.bootstrap, INPUT, OUTPUT, AUDIT, GROUP, transactional_id)
        return [sys.executable, "-m", "tests.e2e.exactly_once_copy", *arguments]

    cluster = PenstockCluster(tmp_path, *SETTINGS)
    with running(cluster), Drill(KilledCluster(cluster), command, tmp_path) as drill:
        drill.run(SECONDS)
        record_property("note", f"exactly-once copy, confluent-kafka: {drill.finish()}")


def copy_of(count: int) -> Found:
    """Return a correct copy, with one transaction per number."""
    name = "committed-copier-{}".format
    output: Found = {
        (OUTPUT, partition): [
            (2 * number, Copied(name(number), PARTITIONS, number)) for number in range(count)
        ]
        for partition in range(PARTITIONS)
    }
    audit = [(2 * number, Copied(name(number), PARTITIONS, -1)) for number in range(count)]
    return {**output, (AUDIT, 0): audit}


def duplicated(found: Found) -> None:
    found[OUTPUT, 1].insert(3, found[OUTPUT, 1][2])


def lost(found: Found) -> None:
    found[OUTPUT, 2].pop()


def reordered(found: Found) -> None:
    found[OUTPUT, 0][1:3] = reversed(found[OUTPUT, 0][1:3])


def aborted(found: Found) -> None:
    found[AUDIT, 0].append((99, Copied("aborted-copier-7", 1, -1)))


def torn(found: Found) -> None:
    found[AUDIT, 0].pop()


def audited_twice(found: Found) -> None:
    found[AUDIT, 0].append(found[AUDIT, 0][0])


def test_a_correct_copy_passes_the_checks() -> None:
    check_copy(copy_of(10), 10)
    check_observed(copy_of(10), copy_of(10))


@pytest.mark.parametrize(
    "damage", [duplicated, lost, reordered, aborted, torn, audited_twice], ids=lambda f: f.__name__
)
def test_the_checks_find_a_wrong_copy(damage: Callable[[Found], None]) -> None:
    found = copy_of(10)
    damage(found)
    with pytest.raises(AssertionError):
        check_copy(found, 10)


def test_the_checks_find_what_a_consumer_saw_and_is_gone() -> None:
    observed = copy_of(10)
    observed[AUDIT, 0].insert(5, (9, Copied("committed-copier-x", 1, -1)))
    with pytest.raises(AssertionError):
        check_observed(observed, copy_of(10))
