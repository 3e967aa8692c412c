"""Verification of transactions: which producers may begin one in a partition (KIP-890). PURE.

The first batch of a transaction in a partition is appended only after the transaction coordinator
has confirmed that the partition is part of the transaction. Otherwise a late batch would begin a
transaction that nobody ends, and that holds back the last stable offset for ever.

A verification begins with a guard. The coordinator's answer may be outdated when it arrives: the
transaction may have ended meanwhile, and its marker is in the log. So a marker voids the guard, and
a void guard cannot be confirmed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_SEQUENCE
from penstock.limits import MAX_VERIFIED_EPOCHS


class VerificationGuard:
    """A verification of one producer epoch, until the first batch or a marker ends it. `adds` tells
    that the coordinator adds the partition, for clients of transaction version 2."""

    __slots__ = ("adds", "began_ms", "epoch", "is_confirmed", "lowest_sequence", "producer_id")

    def __init__(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, adds: bool
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.began_ms = now_ms
        self.adds = adds
        self.is_confirmed = False

    def check_sequence(self, sequence: int, *, has_batches: bool) -> None:
        """Check the first batch of a transaction. A batch behind one whose verification failed
        must not take its place. With transaction version 2 every transaction begins at sequence
        0."""
        if sequence == NO_SEQUENCE:
            return
        if self.adds and sequence != 0 and not has_batches:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {self.producer_id} begins epoch {self.epoch} at sequence {sequence}, "
                "not at 0",
            )
        if sequence > self.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {self.producer_id} sent sequence {sequence} before "
                f"{self.lowest_sequence}, which is not verified yet, was appended",
            )


# Never changed.
_NONE: Final[dict[int, list[VerificationGuard]]] = {}


class VerificationGuards:
    """The guards of a log, by producer id. Each epoch of a producer has its own."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        # Most logs have none ever, and share this dict.
        self._guards = _NONE

    def __len__(self) -> int:
        return sum(map(len, self._guards.values()))

    def begin(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, adds: bool
    ) -> VerificationGuard:
        """Return the guard of a producer epoch, a new one if there is none."""
        guard = self.find(producer_id, epoch)
        if guard is not None:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
            return guard
        guard = VerificationGuard(producer_id, epoch, sequence, now_ms, adds=adds)
        if self._guards is _NONE:
            self._guards = {}
        guards = self._guards.setdefault(producer_id, [])
        guards.append(guard)
        if len(guards) > MAX_VERIFIED_EPOCHS:
            guards.remove(min(guards, key=lambda old: old.epoch))
        return guard

    def find(self, producer_id: int, epoch: int) -> VerificationGuard | None:
        for guard in self._guards.get(producer_id, ()):
            if guard.epoch == epoch:
                return guard
        return None

    def confirm(self, guard: VerificationGuard) -> bool:
        """Return False if the guard is void."""
        if self.find(guard.producer_id, guard.epoch) is not guard:
            return False
        guard.is_confirmed = True
        return True

    def void(self, guard: VerificationGuard) -> None:
        """Remove a guard: the coordinator has refused the transaction."""
        self._keep(guard.producer_id, lambda other: other is not guard)

    def end(self, producer_id: int, epoch: int) -> None:
        """Remove the guards of a producer up to an epoch: a batch or a marker is in the log."""
        if producer_id in self._guards:
            self._keep(producer_id, lambda guard: guard.epoch > epoch)

    def _keep(self, producer_id: int, condition: Callable[[VerificationGuard], bool]) -> None:
        kept = [guard for guard in self._guards.get(producer_id, ()) if condition(guard)]
        if kept:
            self._guards[producer_id] = kept
        else:
            self._guards.pop(producer_id, None)

    def clear(self) -> None:
        self._guards.clear()

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove guards whose producers have not come back."""
        for producer_id in list(self._guards):
            self._keep(producer_id, lambda guard: now_ms - guard.began_ms < expiration_ms)
