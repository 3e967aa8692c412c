"""A service that turns orders into invoices, one invoice per order.

It reads the topic of orders, where customers may send an order twice, and writes the topic of
invoices. An offset is committed after its invoice is written. A service that starts reads the ids
of all invoices first, so an order whose offset was not committed gets no second invoice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

log = logging.getLogger(__name__)


class OrderService:
    """`settings` are settings of both clients of aiokafka."""

    def __init__(
        self,
        bootstrap_servers: str,
        orders: str = "orders",
        invoices: str = "invoices",
        group: str = "order-service",
        **settings: Any,
    ) -> None:
        self.orders = orders
        self.invoices = invoices
        self.group = group
        self._settings = {"bootstrap_servers": bootstrap_servers, **settings}

    async def run(self) -> None:
        """Serve until the task is cancelled. After an error start again from what is written."""
        while True:
            try:
                await self._serve()
            except KafkaError as error:
                log.warning("the order service starts again: %r", error)
                await asyncio.sleep(0.1)

    async def _serve(self) -> None:
        consumer = AIOKafkaConsumer(
            self.orders,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **self._settings,
        )
        producer = AIOKafkaProducer(enable_idempotence=True, **self._settings)
        async with _started(producer), _started(consumer):
            invoiced = await self._invoiced_ids()
            async for record in consumer:
                order = json.loads(record.value)
                if order["id"] not in invoiced:
                    invoice = {"order": order["id"], "total": order["price"] * order["count"]}
                    await self._write(producer, json.dumps(invoice).encode())
                    invoiced.add(order["id"])
                await consumer.commit()

    async def _write(self, producer: AIOKafkaProducer, invoice: bytes) -> None:
        """Write an invoice. The producer retries, and the broker drops what a retry repeats."""
        await producer.send_and_wait(self.invoices, invoice)

    async def _invoiced_ids(self) -> set[int]:
        return {invoice["order"] for invoice in await read_all(self.invoices, **self._settings)}


class ImpatientOrderService(OrderService):
    """An order service with a bug that no test on a healthy cluster finds."""

    async def _write(self, producer: AIOKafkaProducer, invoice: bytes) -> None:
        while True:
            with contextlib.suppress(TimeoutError, KafkaError):
                async with asyncio.timeout(1.0):
                    await producer.send_and_wait(self.invoices, invoice)
                return
            # The bug: the producer still has the record, or the broker has it already. Sending it
            # again makes a second one, which no sequence number tells from a new one.


@contextlib.asynccontextmanager
async def _started(client: Any) -> AsyncIterator[None]:
    try:
        await client.start()
        yield
    finally:
        await client.stop()


async def read_all(topic: str, **settings: Any) -> list[Any]:
    """Return all records of a topic with one partition."""
    consumer = AIOKafkaConsumer(auto_offset_reset="earliest", **settings)
    partition = TopicPartition(topic, 0)
    async with _started(consumer):
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        records: list[Any] = []
        while await consumer.position(partition) < end:
            found = await consumer.getmany(partition, timeout_ms=200)
            records += [json.loads(record.value) for record in found.get(partition, [])]
        return records
