"""The faults that a test has asked for and not removed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from penstock.testing.faults.board import MAX_FAULTS, ApiFault, FaultBoard, Faults


class Fault:
    """A fault of requests. It ends with `remove`, or with its `with` block."""

    def __init__(self, requested: RequestedFaults, fault: ApiFault) -> None:
        self._requested = requested
        self._fault = fault
        self._uses: int | None = None

    @property
    def uses(self) -> int:
        """Return how many requests have met it."""
        return self._requested.uses(self._fault) if self._uses is None else self._uses

    def remove(self) -> None:
        if self._uses is None:
            self._uses = self.uses
            self._requested.remove(self._fault)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_error: object) -> None:
        self.remove()


class RequestedFaults:
    """Publishes each change on the board in `directory`. `nodes` are those of the cluster."""

    def __init__(self, directory: Path, nodes: Iterable[int]) -> None:
        self._board = FaultBoard(directory)
        self._nodes = frozenset(nodes)
        self._faults = Faults()
        self._requested: dict[int, Fault] = {}

    @property
    def has_cuts(self) -> bool:
        return bool(self._faults.cuts)

    def is_cut(self, first: int, second: int) -> bool:
        return self._faults.is_cut(first, second)

    def cut(self, groups: Iterable[Iterable[int]]) -> None:
        """Cut the network between groups of nodes; nodes in no group form one more."""
        sets = list(map(frozenset, groups))
        named: frozenset[int] = frozenset().union(*sets)
        if sum(map(len, sets)) != len(named):
            raise ValueError(f"a node is in several of the groups {list(map(sorted, sets))}")
        sets.append(self._nodes - named)
        cuts = {
            (min(pair), max(pair))
            for first, second in itertools.combinations(sets, 2)
            for pair in itertools.product(first, second)
        }
        if not cuts:
            raise ValueError(f"{sorted(named)} and the others are no two groups of nodes")
        self._publish(replace(self._faults, cuts=self._faults.cuts | cuts))

    def heal(self) -> None:
        self._publish(replace(self._faults, cuts=frozenset()))

    def add(
        self,
        kind: str,
        api: str,
        times: int | None,
        broker: int | None,
        *,
        delay_ms: float = 0.0,
        error_code: int = 0,
    ) -> Fault:
        from penstock.protocol.apis import APIS

        keys = {known.name: known.key for known in APIS}
        if api not in keys:
            raise ValueError(f"{api!r} is no API of Kafka; some are Produce, Fetch, Metadata")
        if times is not None and times < 1:
            raise ValueError(f"a fault happens at least once, not {times} times")
        slot = next((slot for slot in range(MAX_FAULTS) if slot not in self._requested), None)
        if slot is None:
            raise ValueError(f"{MAX_FAULTS} faults are in force already: remove some")
        fault = ApiFault(slot, kind, keys[api], times, broker, delay_ms, error_code)
        self._board.reset(slot)
        self._publish(replace(self._faults, apis=(*self._faults.apis, fault)))
        self._requested[slot] = Fault(self, fault)
        return self._requested[slot]

    def uses(self, fault: ApiFault) -> int:
        return self._board.uses(fault.slot)

    def remove(self, fault: ApiFault) -> None:
        del self._requested[fault.slot]
        apis = tuple(other for other in self._faults.apis if other is not fault)
        self._publish(replace(self._faults, apis=apis))

    def clear(self) -> None:
        """End all faults. They keep the number of their uses."""
        for fault in tuple(self._requested.values()):
            fault.remove()
        self.heal()

    def close(self) -> None:
        self.clear()
        self._board.close()

    def _publish(self, faults: Faults) -> None:
        if faults != self._faults:
            self._faults = faults
            self._board.publish(faults)
