"""Takes the lease of a sink, which is the right to decide its next micro-batch.

A planner takes one for each micro-batch, before its tasks start. InitProducerId on `<sink>/driver`
fences the lease before, so that of two drivers only the later one can decide. Then everything is
settled that earlier leases left behind: transactions that the last decision lists are committed,
and all others of the sink are aborted. If anything of this fails, no task starts.

The lease travels with the writer to the tasks, and with their commit messages to the commit, which
never takes one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.client.client import Client
from penstock.client.producer.accumulator import ProducerIdAndEpoch
from penstock.errors import KafkaError
from penstock.spark.options import SinkOptions
from penstock.spark.sink.decision import Decision, PreparedTransaction, SinkError
from penstock.spark.sink.decision_log import DecisionLog
from penstock.spark.sink.open_transactions import list_open
from penstock.spark.sink.transactions import FENCED, NOT_OPEN, SinkTransactions, both


class LostRowsError(SinkError):
    """A transaction of the last decision was aborted."""


@dataclass(frozen=True, slots=True)
class Lease:
    """`producer` writes the next decision of `<sink>/driver`; `decided` is the last one. `is_v2`
    says by which protocol the driver's transaction ends, also if the brokers are upgraded."""

    sink: str
    producer: ProducerIdAndEpoch
    decided: Decision | None
    is_v2: bool

    def is_newer_than(self, other: Lease) -> bool:
        """Return True only if this lease was certainly taken after the other one. Producer ids,
        which change after 32,766 epochs, are in no order."""
        return (
            self.sink == other.sink
            and self.producer.id == other.producer.id
            and self.producer.epoch > other.producer.epoch
        )


class LeaseTaker:
    """Each step is a method. A step that fails may be repeated with the next lease."""

    def __init__(self, client: Client, options: SinkOptions, sink: str) -> None:
        patience_s = options.connection.api_timeout_s
        self._client = client
        self._options = options
        self._sink = sink
        self._transactions = SinkTransactions(client, sink, patience_s)
        self._log = DecisionLog(client, sink, patience_s)

    async def take(self) -> Lease:
        await self._log.open()
        producer = await self.fence()
        decided, open_ = await both(self.read_decision(), self.list_open())
        return await self.settle(producer, decided, open_)

    async def fence(self) -> ProducerIdAndEpoch:
        """From here on no earlier lease decides anything. Its transaction is complete."""
        return await self._transactions.init_driver()

    async def read_decision(self) -> Decision | None:
        """Return the last decision. After `fence` no earlier lease adds another one."""
        return await self._log.read(await self._log.write_barrier(self._options))

    async def list_open(self) -> list[PreparedTransaction]:
        return await list_open(self._client, self._sink)

    async def settle(
        self,
        producer: ProducerIdAndEpoch,
        decided: Decision | None,
        open_: Collection[PreparedTransaction],
    ) -> Lease:
        """Commit what the decision lists and abort everything else that is open.

        A planner that was overtaken by a later lease may have seen transactions of that one, which
        may be decided meanwhile. So nothing is aborted unless the driver proves after it has seen
        them that it is still the current one: it clears the list, or confirms its epoch.
        """
        listed = () if decided is None else decided.transactions
        unlisted = [found for found in open_ if found not in listed]
        try:
            if decided is not None and listed:
                await self.commit_listed(listed, producer)
                decided = decided.without_transactions()
                producer = await self.clear_list(producer, decided)
            elif unlisted:
                producer = await self._transactions.confirm_driver(producer)
        except KafkaError as error:
            if error.code not in FENCED:
                raise
            raise self._taken_over(error) from error
        await self.abort_unlisted(unlisted)
        return Lease(self._sink, producer, decided, self._transactions.is_v2)

    def _taken_over(self, error: KafkaError) -> SinkError:
        return SinkError(
            f"another start of the query, or another query with the sinkName {self._sink}, has "
            f"taken over the sink ({error}). Make sure that the query runs once, and start it again"
        )

    async def commit_listed(
        self, listed: Collection[PreparedTransaction], producer: ProducerIdAndEpoch
    ) -> None:
        try:
            await self._transactions.commit_all(listed)
        except KafkaError as error:
            if error.code not in NOT_OPEN:
                raise
            # A later lease has committed the list, and its tasks use the ids again.
            if not await self._transactions.is_current(producer):
                raise self._taken_over(error) from error
            raise LostRowsError(
                f"rows of sink {self._sink} are lost: a transaction that its last batch needs was "
                f"aborted before it was committed ({error}). It timed out, or an administrator "
                "ended it. To continue without these rows run `penstock transactions end "
                f"{self._sink} --accept-loss`. Brokers with "
                "transaction.two.phase.commit.enable=true have no such timeout"
            ) from error

    async def clear_list(
        self, producer: ProducerIdAndEpoch, decided: Decision
    ) -> ProducerIdAndEpoch:
        """Write the decision without its list, so that the transactional ids of the list may be
        used again. Return the driver's next producer."""
        await self._log.write(self._options, decided, producer)
        following = await self._transactions.end_driver(producer, commit=True)
        return following or await self._transactions.init_driver(producer)

    async def abort_unlisted(self, unlisted: Collection[PreparedTransaction]) -> None:
        await self._transactions.abort_all(unlisted)
