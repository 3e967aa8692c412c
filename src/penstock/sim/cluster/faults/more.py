"""Faults beside the basic ones, drawn from a random stream of their own.

They replace some of the basic faults, so that a run does not get longer.
"""

from __future__ import annotations

from penstock.sim.cluster.faults.damage import DamageFaults
from penstock.sim.cluster.faults.env import FaultEnv, Inject
from penstock.sim.cluster.faults.machines import MachineFaults
from penstock.sim.cluster.faults.on_events import EventFaults
from penstock.sim.cluster.faults.quorum import QuorumFaults
from penstock.sim.cluster.faults.transactions import TransactionFaults


class MoreFaults:
    def __init__(self, env: FaultEnv) -> None:
        self._env = env
        self._rng = env.rng
        damage, events = DamageFaults(env), EventFaults(env)
        self._machines = machines = MachineFaults(env)
        quorum = QuorumFaults(env, damage)
        self._kinds: dict[Inject, int] = {
            events.crash_on_event: 3,
            events.crash_on_frame: 3,
            events.crash_on_disk_operation: 2,
            machines.limit_bandwidth: 1,
            damage.damage_file: 3,
            quorum.fall_behind: 2,
            quorum.depose_and_fall_behind: 1,
            quorum.wipe_node: 1,
        }
        if env.spec.transactions is not None:
            transactions = TransactionFaults(env)
            self._kinds |= {
                transactions.lose_coordinator: 6,
                transactions.crash_in_transaction: 6,
                transactions.reorder_requests: 4,
                transactions.hold_frames: 6,
            }
        # These need a cluster without other faults.
        self._alone = (quorum.fall_behind, quorum.depose_and_fall_behind, quorum.wipe_node)
        self._lose_power_together = quorum.lose_power_together

    def begin(self) -> None:
        """Let nodes compute slowly and clocks drift, in some runs."""
        self._machines.begin()

    def end(self) -> None:
        self._machines.end()

    def mix_into(self, drawn: list[list[Inject]]) -> list[list[Inject]]:
        """Replace about half of the drawn faults. Those that run at the same time stay together."""
        mixed: list[list[Inject]] = []
        for together in drawn:
            kind = self._rng.choices(list(self._kinds), list(self._kinds.values()))[0]
            is_kept = together[0].__name__ == "_isolate_leader" or self._rng.random() < 0.5
            if is_kept:
                mixed.append(together)
            elif kind in self._alone:
                mixed.append([kind])
            else:
                mixed.append([*together[1:], kind])
        if self._env.spec.may_lose_unsynced:
            mixed.insert(self._rng.randrange(len(mixed) + 1), [self._lose_power_together])
        return mixed
