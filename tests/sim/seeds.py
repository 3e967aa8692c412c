"""The seeds that the simulation tests run.

`make test` runs FIXED and REGRESSIONS: the same seeds each time, so that a change that breaks
nothing cannot fail. Fresh seeds run in `make sim` and `make drill`.

When a fresh seed fails, fix the bug and add the seed to REGRESSIONS, with a comment that names the
bug. PENSTOCK_SIM_SECONDS=60 adds fresh seeds of each kind for so many seconds.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Literal

import pytest

Kind = Literal["log", "broker", "quorum", "cluster", "transactions", "reassignments", "acls"]

# Seeds 0 to N-1 of each kind. All simulation in `make test` takes two to three minutes of one core:
# a log takes 0.05 s, a broker 0.1 s, a quorum 0.3 s and a cluster 3 s, with transactions and
# reassignments up to 5 s.
FIXED: dict[Kind, int] = {
    "log": 200,
    "broker": 100,
    "quorum": 75,
    "cluster": 25,
    "transactions": 15,
    "reassignments": 4,
    "acls": 2,
}

# Seeds that failed once.
REGRESSIONS: dict[Kind, tuple[int, ...]] = {
    "log": (),
    "broker": (),
    "quorum": (
        # A flipped bit in meta.properties named another node, and the node refused to start.
        66471108713093,
        # A leader that removed itself lost the leadership before its removal was committed. It did
        # not stand, and refused its vote to the others, whose logs were behind.
        23019933439155,
        244543127385164,
        259329856682319,
        # The only voter was emptied before it had opened its log.
        203508085634088,
        # A controller was emptied while the only voter was about to add it.
        268630278161917,
        # A controller whose drive had stopped did not know it yet when the faults ended: it ended
        # later, and was never started again.
        53496907721561,
    ),
    "cluster": (
        # The workload took a static member that had to join again for one that was replaced.
        204616241149805,
        # A fault looked at the quorum of a node that had not opened it yet.
        114915589341079,
        # A deletion by name was carried out late, and deleted the next incarnation of the topic.
        164559289764932,
        # The disk of the only replica in sync of a topic with min.insync.replicas=1 was replaced.
        101636691423537,
        # A node was killed before it had opened its metadata log, and a fault asked for its end.
        27156133120137,
    ),
    "transactions": (
        # A damaged log was removed after the cluster had looked healthy, and then all nodes died.
        53720940295088,
        # A member whose heartbeats got errors missed two member epochs, and was fenced: the law was
        # too strict.
        87374017159478,
        # Recovery wrote an index of aborted transactions again, below the recovery point. It was
        # not synced, and the next loss of power tore it: aborted records were read.
        77342017512722,
        # A clock that jumped twice was wrong by more than an hour, and records were refused.
        168634243935220,
    ),
    "reassignments": (
        # A cancellation that the client retried after the faults was carried out after the last
        # reassignment was accepted, and the checker took that for a violation of rule 27.
        16475110961549,
    ),
    "acls": (),
}

# Walks of explorers that failed once.
EXPLORER_REGRESSIONS: dict[str, tuple[int, ...]] = {
    "raft": (),
    # A replica without a leader acknowledged records that were not on disk; a node with static
    # voters did not follow a leader that had joined after kraft.version was raised.
    "voters": (168, 414),
    # A broker learned late that it had led an earlier epoch: the law was too strict.
    "replica": (5892, 8809),
    "moves": (),
    "shard": (),
    # An epoch that only fencing may use, 32767, was given to a client whose EndTxn came late.
    "transactions": (78, 897, 918, 939),
}

# Each test runs this many seeds, so that parallel workers share them evenly.
_SEEDS_PER_TEST: dict[Kind, int] = {
    "log": 100,
    "broker": 50,
    "quorum": 25,
    "cluster": 5,
    "transactions": 5,
    "reassignments": 2,
    "acls": 2,
}
_FRESH_SECONDS = float(os.environ.get("PENSTOCK_SIM_SECONDS", "0"))


class FreshSeeds:
    """Random seeds until a deadline, which is counted from the first of them."""

    def __iter__(self) -> Iterator[int]:
        deadline = time.monotonic() + _FRESH_SECONDS
        while time.monotonic() < deadline:
            yield secrets.randbits(48)


Seeds = Sequence[int] | FreshSeeds


def seeds_of(kind: Kind) -> pytest.MarkDecorator:
    """Parametrize a test with the argument `seeds`."""
    size = _SEEDS_PER_TEST[kind]
    batches: dict[str, Seeds] = {
        f"{first}-{first + size - 1}": range(first, first + size)
        for first in range(0, FIXED[kind], size)
    }
    if REGRESSIONS[kind]:
        batches["regressions"] = REGRESSIONS[kind]
    if _FRESH_SECONDS:
        batches["fresh"] = FreshSeeds()
    return pytest.mark.parametrize("seeds", list(batches.values()), ids=list(batches))
