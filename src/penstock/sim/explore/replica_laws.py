"""The laws of the replica explorer, checked over all brokers of a walk (rules 1, 2, 3, 7, 9, 10, 11
and 12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.replica.leader import Leader
from penstock.sim.explore.replica_log import Entry
from penstock.sim.explore.walk import LawBroken

if TYPE_CHECKING:
    from penstock.sim.explore.replica_broker import ExploredBroker

ONE_VALUE = "one value per offset"
LEADER_COMPLETENESS = "leaders are complete"
CLEAN_ELECTION = "leaders are in sync"
IN_SYNC = "the high watermark is in every in-sync log"
MIN_INSYNC = "nothing is committed below min.insync.replicas"
NEVER_BACK = "the high watermark never goes back"
TRUNCATION = "a follower removes only what its leader does not have"
LOG_MATCHING = "logs match"
FENCED = "stale broker epochs acknowledge nothing"
RECOVERY = "all replicas get back in sync"


class ReplicaLaws:
    def __init__(self) -> None:
        # All that was ever committed: below the high watermark of any replica.
        self.committed: list[Entry] = []
        # The leader epoch in which each of them was committed.
        self._commit_epochs: list[int] = []
        # Leader epoch -> broker
        self.leaders: dict[int, int] = {}
        # (leader epoch, offset) -> entry and the entry before it
        self._positions: dict[tuple[int, int], tuple[Entry, Entry | None]] = {}

    def appended(self, broker: ExploredBroker, first: int) -> None:
        """A replica appended its entries from offset `first` on."""
        log = broker.log
        for offset in range(max(first, log.start_offset), log.end_offset):
            entry, before = log.entry(offset), log.entry(offset - 1)
            assert entry is not None
            known = self._positions.setdefault((entry[0], offset), (entry, before))
            if known[0] != entry or (None not in (before, known[1]) and before != known[1]):
                raise LawBroken(
                    LOG_MATCHING,
                    f"broker {broker.id} appended {entry} after {before} at {offset}, and another "
                    f"one {known[0]} after {known[1]}",
                )

    def elected(self, broker: ExploredBroker, leader: Leader) -> None:
        other = self.leaders.setdefault(leader.epoch, broker.id)
        if other != broker.id:
            raise LawBroken(
                ONE_VALUE, f"brokers {other} and {broker.id} lead in epoch {leader.epoch}"
            )
        if broker.id not in leader.isr:
            raise LawBroken(
                CLEAN_ELECTION, f"broker {broker.id} leads the in-sync replicas {leader.isr}"
            )
        log = broker.log
        for offset in range(log.start_offset, len(self.committed)):
            # A broker may learn late that it led an earlier epoch.
            if (
                self._commit_epochs[offset] < leader.epoch
                and log.entry(offset) != self.committed[offset]
            ):
                raise LawBroken(
                    LEADER_COMPLETENESS,
                    f"broker {broker.id} leads in epoch {leader.epoch} with {log.entry(offset)} at "
                    f"{offset}, where {self.committed[offset]} is committed",
                )

    def committed_up_to(
        self, broker: ExploredBroker, before: int, high_watermark: int, epoch: int
    ) -> None:
        """A replica's high watermark advanced, in a leader epoch."""
        log, committed = broker.log, self.committed
        for offset in range(max(before, log.start_offset), high_watermark):
            entry = log.entry(offset)
            if entry is None:
                raise LawBroken(
                    IN_SYNC,
                    f"broker {broker.id} has the high watermark {high_watermark} and ends at "
                    f"{log.end_offset}",
                )
            if offset == len(committed):
                committed.append(entry)
                self._commit_epochs.append(epoch)
            elif committed[offset] != entry:
                raise LawBroken(
                    ONE_VALUE,
                    f"{committed[offset]} is committed at {offset}, and {entry} on broker "
                    f"{broker.id}",
                )

    def led_commit(
        self, brokers: dict[int, ExploredBroker], broker: ExploredBroker, leader: Leader
    ) -> None:
        """A leader advanced its high watermark: its in-sync replicas have the records. One that
        crashed since it fetched may have lost them."""
        end = leader.high_watermark
        if len(leader.isr) < leader.min_insync:
            raise LawBroken(
                MIN_INSYNC,
                f"broker {broker.id} committed up to {end} with the in-sync replicas {leader.isr}",
            )
        entry = broker.log.entry(end - 1)
        for replica, follower in leader.followers.items():
            other = brokers[replica]
            if (
                replica in leader.isr
                and other.epoch == follower.broker_epoch
                and not other.has_lost_power
                # Later it was removed from the replicas, and may be one again.
                and other.dropped_in <= leader.epoch
                and other.log.start_offset < end
                and other.log.entry(end - 1) != entry
            ):
                raise LawBroken(
                    IN_SYNC,
                    f"broker {broker.id} committed up to {end} in epoch {leader.epoch}, and its "
                    f"in-sync replica {replica} ends at {other.log.end_offset}",
                )

    def accepted(
        self, leader: ExploredBroker, follower: int, broker_epoch: int, known_epoch: int
    ) -> None:
        """A leader took a fetch as an acknowledgement. It knows the follower's broker epoch."""
        if broker_epoch < known_epoch:
            raise LawBroken(
                FENCED,
                f"broker {leader.id} accepted a fetch of broker {follower} in broker epoch "
                f"{broker_epoch}, and knows {known_epoch}",
            )

    def truncated(self, leader: ExploredBroker | None, broker: ExploredBroker, offset: int) -> None:
        """A follower truncates to `offset`. `leader` is None if it does not lead any more."""
        log = broker.log
        if leader is None:
            return
        for removed in range(max(offset, log.start_offset), log.end_offset):
            if log.entry(removed) == leader.log.entry(removed):
                raise LawBroken(
                    TRUNCATION,
                    f"broker {broker.id} truncates from {log.end_offset} to {offset}, and its "
                    f"leader {leader.id} has {log.entry(removed)} at {removed}",
                )

    def went_back(self, broker: ExploredBroker, before: int, leader: Leader) -> None:
        raise LawBroken(
            NEVER_BACK,
            f"the high watermark of broker {broker.id} went from {before} to "
            f"{leader.high_watermark} in epoch {leader.epoch}",
        )
