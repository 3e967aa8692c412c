"""The network between nodes: what each of them sees of the others shows whether one node is at
fault, or the way between two."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from penstock.health.findings import Finding, Level, Reason
from penstock.health.history import RECENT_MS, last_departure, logged, recent_events
from penstock.health.observations import (
    Broker,
    Event,
    EventKind,
    NodeState,
    Observation,
    Partition,
    Reach,
)
from penstock.health.wording import brokers, counted, duration

# A live broker or voter fetches the metadata log at least every 500 ms. This leaves room for a busy
# machine, and is below broker.session.timeout.ms.
FETCH_SILENCE_MS = 5_000
# One slow fetch is a busy moment. A broker logs at most one of each leader in ten seconds.
_SLOW_FETCHES = 3
_SLOW_WITHIN_MS = 60_000
_COMMON_SHARE = 0.8
# A broker that answers doctor this late is slow, if another one answers in a part of the time.
_SLOW_ANSWER_MS = 1_000
_SLOW_ANSWER_RATIO = 5
_NOT_FETCHED = re.compile(r"broker \d+ has not fetched from broker (\d+) for [^;]+")


def is_silent(seen: Observation, broker: Broker) -> bool:
    """Return True if the active controller does not hear the broker."""
    fetched_ms = broker.last_metadata_fetch_ms
    return fetched_ms is not None and seen.quorum_seen_ms - fetched_ms >= FETCH_SILENCE_MS


def cut_off(seen: Observation, broker: Broker) -> list[Reason]:
    """Return why the controllers do not hear a broker that answers here, if that is the network."""
    node = seen.nodes.get(broker.id)
    if (
        broker.probe is None
        or broker.probe.reach is not Reach.KAFKA
        or (node is not None and node.state not in (None, NodeState.RUNNING))
        or not (
            is_silent(seen, broker) or recent_events(seen, EventKind.HEARTBEAT_FAILED, broker.id)
        )
    ):
        return []
    return [
        Reason(
            "cut-off",
            f"{broker.probe.address} answers here, so its process runs: the network between it and "
            "the controllers is cut, in one direction or both",
            check_controllers(broker.id),
        )
    ]


def check_controllers(broker_id: int) -> str:
    return f"check the network between broker {broker_id} and the controllers, in both directions"


def cut_between(seen: Observation, broker: Broker, partition: Partition) -> list[Reason]:
    """Return why a follower that the controllers hear does not fetch from one leader."""
    leader = partition.leader
    departed = last_departure(seen, broker.id, partition)
    failed = [
        event
        for event in recent_events(seen, EventKind.FETCH_FAILED, broker.id)
        if leader in event.numbers
    ]
    reasons = []
    both = brokers(sorted((leader, broker.id)))
    silence = None if departed is None else _NOT_FETCHED.search(departed.words)
    if departed is not None and silence is not None and int(silence[1]) == leader:
        line = replace(departed, words=silence[0])
        reasons.append(Reason("no-fetch", logged(seen, line, f"broker {leader}")))
    if failed:
        reasons.append(Reason("fetch-failed", logged(seen, failed[-1])))
    if reasons and broker.last_metadata_fetch_ms is not None and not is_silent(seen, broker):
        reasons.append(
            Reason(
                "link-cut",
                f"the controllers hear {{it}}: the network between {both} is cut, in one direction "
                "or both",
                f"check firewalls and routes between {both}",
            )
        )
    return reasons


def slow_fetches(seen: Observation, broker_id: int) -> list[Event]:
    """Return the slow fetches of a broker, and those from it."""
    return [
        event
        for node in {each.node for each in seen.events}
        for event in recent_events(seen, EventKind.SLOW_FETCH, node)
        if broker_id in (node, *event.numbers)
    ]


def slow_answer(seen: Observation, broker: Broker) -> list[Reason]:
    """Return that a broker answers later here than another one, if it does."""
    times = [
        each.probe.round_trip_ms
        for each in seen.brokers.values()
        if each.probe is not None and each.probe.round_trip_ms is not None
    ]
    own = None if broker.probe is None else broker.probe.round_trip_ms
    if own is None or own < max(_SLOW_ANSWER_MS, _SLOW_ANSWER_RATIO * min(times)):
        return []
    words = f"it answers here after {duration(own)}, another broker after {duration(min(times))}"
    return [Reason("slow-answer", words)]


def check_links(seen: Observation) -> Iterator[Finding]:
    """Return slow replication, and brokers that answer slowly here."""
    events = [
        event
        for node in sorted({each.node for each in seen.events})
        for event in recent_events(seen, EventKind.SLOW_FETCH, node)
    ]
    pairs = Counter(frozenset((event.node, *event.numbers)) for event in events)
    by_node = Counter(event.node for event in events)
    latest = [event for event in events if seen.now_ms - event.at_ms < _SLOW_WITHIN_MS]
    blamed: list[int] = []
    if max(len(latest), *by_node.values(), 0) >= _SLOW_FETCHES:
        blamed = _blamed(pairs)
        peers = sorted(frozenset.union(*pairs).difference(blamed))
        yield _slow_replication(seen, events, blamed, peers)
    for broker in seen.brokers.values():
        reasons = slow_answer(seen, broker)
        if reasons and broker.id not in blamed:
            yield Finding(
                "slow-answer",
                Level.WARNING,
                (f"broker {broker.id}",),
                "answers slowly",
                tuple(reasons),
                f"check the load of broker {broker.id}, and loss, delay and bandwidth of the "
                "network to it",
            )


def _blamed(pairs: Counter[frozenset[int]]) -> list[int]:
    """Return the broker that nearly all slow fetches between several brokers have in common, or all
    brokers of them."""
    counts = Counter({each: 0 for pair in pairs for each in pair})
    for pair, count in pairs.items():
        counts.update(dict.fromkeys(pair, count))
    (broker, count), *_others = counts.most_common()
    is_common = len(pairs) > 1 and count >= _COMMON_SHARE * pairs.total()
    return [broker] if is_common else sorted(counts)


def _slow_replication(
    seen: Observation, events: list[Event], blamed: list[int], peers: list[int]
) -> Finding:
    latest = max(events, key=lambda event: event.at_ms)
    between = f" between it and {brokers(peers)}" if peers else ""
    reasons = [
        Reason(
            "slow-fetches",
            f"{counted(len(events), 'fetch')}{between} took long in the last {duration(RECENT_MS)}",
        ),
        Reason("slow-fetch", logged(seen, latest, f"broker {latest.node}")),
    ]
    if len(blamed) == 1:
        reasons += _node_or_network(seen, blamed[0])
    return Finding(
        "slow-replication",
        Level.WARNING,
        tuple(f"broker {broker_id}" for broker_id in blamed),
        "replicates slowly",
        tuple(reasons),
        "check loss, delay and bandwidth of the network between these brokers, and their load",
    )


def _node_or_network(seen: Observation, broker_id: int) -> list[Reason]:
    """Tell a broker that is slow itself from one whose network is."""
    broker = seen.brokers.get(broker_id)
    reasons = [] if broker is None else slow_answer(seen, broker)
    blocked = recent_events(seen, EventKind.BLOCKED, broker_id)
    if blocked:
        reasons.append(Reason("blocked", logged(seen, blocked[-1], "it")))
    elif broker_id in seen.nodes:
        reasons.append(
            Reason(
                "slow-network",
                "its log has no blocked event loop: the network to it is more likely to be slow "
                "or to lose packets",
            )
        )
    return reasons
