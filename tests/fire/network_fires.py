"""Fires of the network: cuts, one-way cuts, loss, bandwidth, delay."""

from __future__ import annotations

import time

from tests.fire.burn import Cause, Result, burn
from tests.fire.cluster import INSIDE, NODE_IDS, OUTSIDE, FireCluster, FireError
from tests.fire.doctor import Diagnosis
from tests.fire.load import Load

_SLOW = r"fetch from broker \d took \d+ ms"
_NO_CONTROLLER = r"broker heartbeat failed: no controller answered .* within"
_FENCED = (
    r"heartbeats stopped at [\d:]+; the controller fenced it at [\d:]+: no heartbeat for 6 s .*; "
    rf"it logged at [\d:]+: {_NO_CONTROLLER}"
)
_CUT_OFF = (
    Diagnosis(
        "at-min-isr",
        rf"{_FENCED}.*; 10\.77\.0\.1:9092 answers here, so its process runs: the network between "
        "it and the controllers is cut",
    ),
)
_SLOW_BROKER = Diagnosis(
    "slow-replication", r"^broker 1 replicates slowly: \d+ fetch\w* between it and .* took long"
)


def leader_isolated(cluster: FireCluster) -> Result:
    """A leader is cut off together with a client, which goes on to write to it and to read. The
    leader acknowledges nothing that the others do not have, and what it took is truncated."""
    cluster.create_topic("fire-inside")
    inside = Load(cluster, "fire-inside", host=INSIDE, only=0, bootstrap=_address(cluster, 1))
    counts: list[int] = []
    starts = {node_id: cluster.nodes[node_id].log_size() for node_id in (2, 3)}

    def light() -> None:
        cluster.network.cut(["n1", INSIDE], ["n2", "n3", OUTSIDE])
        time.sleep(1.0)  # what was under way
        counts.append(inside.count)

    def put_out() -> None:
        counts.append(inside.count)
        cluster.network.heal()

    with inside:
        inside.wait_more(100)
        causes = (Cause(1, _NO_CONTROLLER),)
        result = burn(
            cluster,
            "isolated",
            light,
            put_out,
            causes,
            (Diagnosis("at-min-isr", rf"{_FENCED}.*; 10\.77\.0\.1:9092 does not answer"),),
            settle=lambda: _wait_fenced(cluster, starts),
        )
        if counts[0] != counts[1]:
            raise FireError(f"the isolated leader acknowledged {counts[1] - counts[0]} records")
        inside.wait_more(100)
        inside.finish()
    return result


def cut_out_of_leader(cluster: FireCluster) -> Result:
    """The other nodes do not hear a leader, which hears them."""
    return burn(
        cluster,
        "cut-out",
        lambda: cluster.network.cut(["n1"], ["n2", "n3"], one_way=True),
        cluster.network.heal,
        (Cause(1, _NO_CONTROLLER),),
        _CUT_OFF,
        hold_s=8.0,
        until_logged=True,
    )


def cut_into_leader(cluster: FireCluster) -> Result:
    """A leader does not hear the other nodes, which hear it."""
    return burn(
        cluster,
        "cut-in",
        lambda: cluster.network.cut(["n2", "n3"], ["n1"], one_way=True),
        cluster.network.heal,
        (Cause(1, _NO_CONTROLLER),),
        _CUT_OFF,
        hold_s=8.0,
        until_logged=True,
    )


def cut_between_two(cluster: FireCluster) -> Result:
    """Two nodes do not reach each other, and both reach the third, the active controller."""
    controller = cluster.quorum_leader()
    one, other = (node_id for node_id in NODE_IDS if node_id != controller)
    silence = rf"broker {other} has not fetched from broker {one} for \d+ s"
    return burn(
        cluster,
        "cut-between",
        lambda: cluster.network.cut([f"n{one}"], [f"n{other}"]),
        cluster.network.heal,
        (Cause(one, rf"broker {other} left the in-sync replicas of .*: .*{silence}"),),
        (
            Diagnosis(
                "at-min-isr",
                rf"broker {one} logged at [\d:]+: {silence}; the controllers hear it: the network "
                rf"between brokers {one} and {other} is cut",
            ),
        ),
        hold_s=8.0,
        until_logged=True,
    )


def packet_loss(cluster: FireCluster) -> Result:
    """A leader loses 15 percent of its packets, until a follower has noticed."""
    return burn(
        cluster,
        "loss",
        lambda: cluster.network.lose("n1", 15),
        cluster.network.heal,
        (Cause(2, rf"{_SLOW}|cannot fetch from broker 1"),),
        (_SLOW_BROKER,),
        hold_s=8.0,
        until_logged=True,
    )


def bandwidth(cluster: FireCluster) -> Result:
    """A leader has a tenth of the bandwidth that its load needs."""
    cluster.create_topic("fire-bandwidth")
    return burn(
        cluster,
        "bandwidth",
        lambda: cluster.network.limit("n1", "300kbit"),
        cluster.network.heal,
        (Cause(2, rf"{_SLOW}|cannot fetch from broker 1|broker 1 left the in-sync"),),
        (_SLOW_BROKER,),
        hold_s=6.0,
        until_logged=True,
        load=Load(cluster, "fire-bandwidth", padding=1500),
    )


def delay(cluster: FireCluster) -> Result:
    """Every packet of a leader arrives 1.2 s late."""
    return burn(
        cluster,
        "delay",
        lambda: cluster.network.delay("n1", 1200),
        cluster.network.heal,
        (Cause(2, _SLOW),),
        (
            _SLOW_BROKER,
            Diagnosis(
                "slow-replication", r"; it answers here after 1 s, another broker after \d+ ms"
            ),
        ),
        hold_s=6.0,
        until_logged=True,
    )


def _wait_fenced(cluster: FireCluster, starts: dict[int, int]) -> None:
    """Wait until another node fences node 1. A new controller waits for a session first."""
    pattern = "fencing broker 1: no heartbeat for"
    cluster.wait(
        lambda: any(
            pattern in cluster.nodes[node_id].log_text(start) for node_id, start in starts.items()
        ),
        "another node fences node 1",
        30.0,
    )


def _address(cluster: FireCluster, node_id: int) -> str:
    return f"{cluster.nodes[node_id].host.address}:9092"
