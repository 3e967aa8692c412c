"""The abort of the exactly-once sink, which ends only what it can prove to be undecided."""

from __future__ import annotations

import pytest

import penstock
from penstock.spark.sink.decision import SinkError
from tests.spark.exactly_once.brokers import new_sink, set_transaction_version
from tests.spark.exactly_once.sink import Sink, large, small


def test_abort_of_a_failed_batch(sink: Sink) -> None:
    lease = sink.lease()
    written = sink.write(lease, 0, large("a"))
    sink.abort(0, written, None)
    assert sink.open_transactions() == []
    with pytest.raises(SinkError):
        sink.commit(0, written)
    sink.batch(0, large("a"))
    assert sink.settled(large("a"))


def test_abort_in_the_middle_of_the_commit(sink: Sink) -> None:
    lease = sink.lease()
    results = sink.write(lease, 0, large("a")), sink.write(lease, 0, small("b"))
    sink.commit_until("decide", 0, *results)
    sink.abort(0, *results)
    assert sink.settled([])
    assert sink.decision() is None


def test_abort_after_the_decision_touches_nothing(sink: Sink) -> None:
    lease = sink.lease()
    results = sink.write(lease, 0, large("a")), sink.write(lease, 0, small("b"))
    sink.commit_until("end_listed", 0, *results)
    sink.abort(0, *results)
    assert len(sink.open_transactions()) == 1
    sink.lease()
    assert sink.settled([*large("a"), "b"])


def test_abort_without_results_aborts_what_the_tasks_left(sink: Sink) -> None:
    """Two-phase transactions have no timeout, and the query may not come back."""
    lease = sink.lease()
    written = sink.write(lease, 0, large("a"))
    sink.abort(0, None, None)
    assert sink.open_transactions() == []
    with pytest.raises(SinkError):
        sink.commit(0, written)
    sink.batch(0, large("a"))
    assert sink.settled(large("a"))


def test_abort_without_results_does_not_fence_a_successor(sink: Sink) -> None:
    sink.batch(0, small("a"))
    sink.batch(1, small("b"))
    successor = sink.lease()
    # All tasks of a driver that was replaced in batch 1 have failed.
    sink.abort(1, None, None)
    sink.commit(2, sink.write(successor, 2, small("c")))
    assert sink.settled(["a", "b", "c"])


def test_abort_without_results_commits_what_is_decided(sink: Sink) -> None:
    lease = sink.lease()
    sink.commit_until("end_listed", 0, sink.write(lease, 0, large("a")))
    sink.abort(0, None, None)
    assert sink.settled(large("a"))


@pytest.mark.parametrize("versions", [(1, 2), (2, 1)], ids=["upgrade", "downgrade"])
def test_abort_after_the_transaction_version_changed_touches_nothing(
    versions: tuple[int, int],
) -> None:
    with penstock.Cluster() as cluster:
        set_transaction_version(cluster.bootstrap_servers, versions[0])
        sink = new_sink(cluster.bootstrap_servers)
        lease = sink.lease()
        results = sink.write(lease, 0, large("a")), sink.write(lease, 0, small("b"))
        sink.commit_until("end_listed", 0, *results)
        set_transaction_version(cluster.bootstrap_servers, versions[1])
        sink.abort(0, *results)
        assert len(sink.open_transactions()) == 1
        sink.lease()
        assert sink.settled([*large("a"), "b"])
