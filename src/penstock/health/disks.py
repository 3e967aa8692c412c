"""Disks that fill, are slow, or do not answer."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.health.findings import Finding, Level, Reason
from penstock.health.observations import SLOW_FLUSH_S, Broker, Flushes, LogDir
from penstock.health.wording import listed, size

# A disk is short of space if both its share and its bytes are below a bound: 5 % of 20 TB are
# enough, and so are 30 GB of a small disk.
_FULL_SHARE, _FULL_BYTES = 0.05, 20 * 10**9
_FILLING_SHARE, _FILLING_BYTES = 0.10, 50 * 10**9
# A busy disk has single slow syncs. Since the start of a node there are many syncs, while doctor
# looks there are few.
_SLOW_FLUSHES, _SLOW_FLUSH_SHARE = 10, 0.1
_RECENT_SLOW_FLUSHES, _RECENT_SLOW_SHARE = 2, 0.5


def check_disks(broker: Broker) -> Iterator[Finding]:
    for directory in broker.log_dirs or ():
        finding = _space(broker.id, directory)
        if finding is not None:
            yield finding
    for reason in disk_reasons(broker):
        yield Finding(
            reason.code,
            Level.PROBLEM if reason.code == "disk-stalled" else Level.WARNING,
            (f"the disk of broker {broker.id}",),
            reason.words.removeprefix("{its} disk "),
            (),
            reason.todo,
        )


def disk_reasons(broker: Broker) -> list[Reason]:
    """Return that the disk of a broker does not answer, or is slow."""
    machine = f"look for other work on the disk of broker {broker.id}, and for its errors in the "
    if broker.stalled_dirs:
        words = f"does not answer: a read of {listed(broker.stalled_dirs)} takes longer than 1 s"
        todo = (
            f"{machine}log of the machine. If the disk does not recover, stop broker {broker.id}: "
            "other brokers lead its partitions then"
        )
        return [Reason("disk-stalled", f"{{its}} disk {words}", todo)]
    for flushes, least, share, when in (
        (broker.recent_flushes, _RECENT_SLOW_FLUSHES, _RECENT_SLOW_SHARE, "while doctor looked"),
        (broker.flushes, _SLOW_FLUSHES, _SLOW_FLUSH_SHARE, "since its start"),
    ):
        if flushes is not None and flushes.slow >= max(least, share * flushes.count):
            return [
                Reason(
                    "disk-slow",
                    f"{{its}} disk is slow: {_counted(flushes)} took {SLOW_FLUSH_S:g} s or longer "
                    f"{when}",
                    f"{machine}log of the machine",
                )
            ]
    return []


def _counted(flushes: Flushes) -> str:
    return f"{flushes.slow:,} of {flushes.count:,} syncs of its logs"


def _space(broker_id: int, directory: LogDir) -> Finding | None:
    total, usable = directory.total_bytes, directory.usable_bytes
    if directory.error or not total or usable is None:
        return None
    share = usable / total
    if share < _FULL_SHARE and usable < _FULL_BYTES:
        level, code = Level.PROBLEM, "disk-full"
    elif share < _FILLING_SHARE and usable < _FILLING_BYTES:
        level, code = Level.WARNING, "disk-fills"
    else:
        return None
    return Finding(
        code,
        level,
        (f"the disk of {directory.path} of broker {broker_id}",),
        f"has {size(usable)} of {size(total)} left",
        (
            Reason(
                code,
                "a broker takes a log directory offline when a write to it fails, with all its "
                "partitions",
            ),
        ),
        "add space, move replicas to other brokers (penstock rebalance), or lower retention.bytes "
        "or retention.ms of large topics",
    )
