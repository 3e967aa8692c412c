"""The rules of a follower: where its log diverges from the leader's, and its high watermark.
PURE."""

from __future__ import annotations

from typing import NamedTuple

from penstock.ids import NO_LEADER_EPOCH


class DivergingEpoch(NamedTuple):
    """The leader's largest epoch that is not above the follower's last one, and where it ends in
    the leader's log (KIP-595)."""

    epoch: int
    end_offset: int


def truncation_point(
    diverging: DivergingEpoch, own_epoch: int, own_epoch_end: int, end_offset: int
) -> int:
    """Return the offset to truncate to. `own_epoch` is the largest epoch of the follower's log that
    is not above the leader's, and `own_epoch_end` its end there.

    A follower never truncates to its high watermark (KIP-101): records below it may be ones that it
    must remove, and records above it may be committed. A follower that does not have the leader's
    epoch truncates to the end of the epoch before it, and fetches again with that one.
    """
    if own_epoch == NO_LEADER_EPOCH:
        return min(diverging.end_offset, end_offset)
    return min(diverging.end_offset, own_epoch_end, end_offset)


def follower_watermark(current: int, leader_watermark: int, end_offset: int) -> int:
    """Return a follower's high watermark after a fetch. It does not go back: a leader that was just
    elected may have a lower one than the leader before."""
    return max(current, min(leader_watermark, end_offset))
