"""Ends the transactions of a sink whose query does not come back (penstock transactions end).

It takes a lease like a query that starts, and decides nothing with it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.client.client import Client
from penstock.client.producer.accumulator import ProducerIdAndEpoch
from penstock.spark.options import SinkOptions
from penstock.spark.sink.decision import PreparedTransaction, SinkError
from penstock.spark.sink.lease import LeaseTaker, LostRowsError


@dataclass(slots=True)
class Settlement:
    committed: int = 0
    aborted: int = 0
    lost: int = 0


class _CountingLeaseTaker(LeaseTaker):
    accept_loss = False

    def __init__(self, client: Client, options: SinkOptions, sink: str) -> None:
        super().__init__(client, options, sink)
        self.settled = Settlement()

    async def commit_listed(
        self, listed: Collection[PreparedTransaction], producer: ProducerIdAndEpoch
    ) -> None:
        for transaction in listed:
            try:
                await super().commit_listed([transaction], producer)
                self.settled.committed += 1
            except LostRowsError:
                if not self.accept_loss:
                    raise
                self.settled.lost += 1

    async def abort_unlisted(self, unlisted: Collection[PreparedTransaction]) -> None:
        await super().abort_unlisted(unlisted)
        self.settled.aborted += len(unlisted)


async def settle(
    client: Client, options: SinkOptions, sink: str, *, accept_loss: bool
) -> Settlement:
    """Commit what the last decision lists, and abort all others. SinkError if there is no such
    sink, or if a listed transaction was aborted and that is not accepted."""
    listed = await client.admin.list_transactions()
    if not any(
        transaction.transactional_id.startswith(f"{sink}/")
        for transactions in listed.values()
        for transaction in transactions
    ):
        # InitProducerId would create the transactional id.
        raise SinkError(
            f"there are no transactions of a sink {sink}: see penstock transactions list, where "
            "ids begin with the sink's name and a slash"
        )
    taker = _CountingLeaseTaker(client, options, sink)
    taker.accept_loss = accept_loss
    await taker.take()
    return taker.settled
