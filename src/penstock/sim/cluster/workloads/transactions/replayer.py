"""An adversary: sends requests of transactions again, later, in any order, over connections of its
own. A network that delays packets, and clients that retry, do the same.

Requests that end a transaction of the old protocol are left out: there a late one may end the next
transaction, as in Kafka (KIP-890).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from penstock.client.connection import open_connection
from penstock.errors import KafkaError
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from penstock.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from penstock.sim.cluster.observers.transactions import REPLAYER, SentRequest
from penstock.sim.cluster.workloads.transactions.env import TxnEnv
from penstock.world.sim import Node as Machine

_TIMEOUT_S = 1.0
# The first versions of clients whose epoch changes with every transaction.
_END_TXN_VERSION, _OFFSETS_VERSION, _TRANSACTION_VERSION = 5, 5, 2


class Replayer:
    """`sent` are the requests that may be repeated, oldest first."""

    def __init__(self, env: TxnEnv, sent: Sequence[SentRequest]) -> None:
        self._env = env
        self._rng = env.rng
        self._sent = sent

    async def run(self, machine: Machine) -> None:
        while not self._env.over.is_set():
            await self._env.pause(0.15)
            chosen = self._choose()
            if chosen is None:
                continue
            with contextlib.suppress(KafkaError):
                await self._replay(machine, chosen)

    def _choose(self) -> SentRequest | None:
        """Choose a request, more often a recent one, and one API as often as another."""
        candidates = [sent for sent in self._sent if _may_be_late(sent)]
        if self._rng.random() < 0.7:
            candidates = candidates[-40:]
        if not candidates:
            return None
        key = self._rng.choice(sorted({sent.api.key for sent in candidates}))
        return self._rng.choice([sent for sent in candidates if sent.api.key == key])

    async def _replay(self, machine: Machine, sent: SentRequest) -> None:
        host = sent.address.rpartition(":")[0]
        if self._rng.random() < 0.4:
            host = self._rng.choice(self._env.cluster.brokers)
        connection = await open_connection(
            machine.world,
            host,
            9092,
            client_id=REPLAYER,
            connect_timeout_s=_TIMEOUT_S,
            request_timeout_s=_TIMEOUT_S,
        )
        try:
            future: asyncio.Future[Any] = connection._send(
                sent.request, sent.response, sent.api, sent.version, _TIMEOUT_S
            )
            with contextlib.suppress(asyncio.CancelledError):
                await future
            self._env.history.count(f"{sent.api.name} requests repeated")
        finally:
            connection.close()


def _may_be_late(sent: SentRequest) -> bool:
    match sent.request:
        case EndTxnRequest():
            return sent.version >= _END_TXN_VERSION
        case TxnOffsetCommitRequest():
            return sent.version >= _OFFSETS_VERSION
        case WriteTxnMarkersRequest(markers=markers):
            return all(marker.transaction_version >= _TRANSACTION_VERSION for marker in markers)
        case _:
            return True
