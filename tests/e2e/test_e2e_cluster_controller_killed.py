"""After kill -9 of the active controller another one is elected, and topics can be created; with
and without a broker in its process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.penstock_cluster import PenstockCluster, wait_for
from tests.e2e.penstock_process import running

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.mark.parametrize("controllers", [None, 3], ids=["combined", "separate"])
def test_another_controller_is_elected_and_topics_are_created(
    tmp_path: Path, controllers: int | None
) -> None:
    with running(PenstockCluster(tmp_path, controllers=controllers)) as cluster:
        first = cluster.quorum_leader()
        assert (first > 100) == (controllers is not None)
        cluster.create_topic("before", [[1, 2, 3]])
        cluster.nodes("kill", str(first))
        second = wait_for(
            cluster.quorum_leader,
            lambda leader: leader not in (first, -1),
            "the quorum's leader",
            cluster.logs,
        )
        survivors = [node for node in (1, 2, 3) if node != first]
        cluster.create_topic("after", [survivors])
        assert cluster.partition("after").leader == survivors[0]
        cluster.wait_partition("before", lambda partition: partition.leader in survivors)
        cluster.nodes("restart", str(first))
        assert (
            wait_for(
                cluster.quorum_leader,
                lambda leader: leader > 0,
                "the quorum's leader",
                cluster.logs,
            )
            == second
        )
        cluster.wait_partition("before", lambda partition: len(partition.isr) == 3)
