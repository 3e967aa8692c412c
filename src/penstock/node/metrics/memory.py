"""Estimates of the memory of a node's rooms, for metrics."""

from __future__ import annotations

from penstock.node.fetch.fetches import Fetches
from penstock.node.quorum.quorum import Quorum
from penstock.node.replication.replicas import Replicas
from penstock.node.shards.groups import Groups
from penstock.node.shards.transactions import Transactions

# Rough sizes in bytes of the objects of one.
_PARTITION = 3_000
_IMAGE_TOPIC = 1_000
_SESSION = 5_000
_GROUP = 4_000
_TRANSACTION = 1_000


class RoomBytes:
    """Counts objects, not bytes: walking over them would take long."""

    def __init__(
        self,
        replicas: Replicas,
        fetches: Fetches,
        quorum: Quorum,
        groups: Groups,
        transactions: Transactions,
    ) -> None:
        self._replicas = replicas
        self._fetches = fetches
        self._quorum = quorum
        self._groups = groups
        self._transactions = transactions

    def __call__(self) -> dict[str, int]:
        group_count = sum(len(machine.groups.by_id) for machine in self._groups.machines)
        transaction_count = sum(len(each.table.by_id) for each in self._transactions.machines)
        return {
            "log": self._replicas.store.open_files.cached_bytes
            + len(self._replicas.partitions) * _PARTITION,
            "metadata": len(self._quorum.image.topics) * _IMAGE_TOPIC,
            "fetch": len(self._fetches.sessions) * _SESSION,
            "coordinator": group_count * _GROUP + transaction_count * _TRANSACTION,
        }
