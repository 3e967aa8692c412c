"""What the tests of the order service share: its topics, and orders."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

from orders import OrderService, read_all

from penstock.testing import ClientConfigs, ProcessCluster

PATIENCE_S = 60.0


class Shop:
    """The topics of a test, and an order service between them."""

    def __init__(self, cluster: ProcessCluster, clients: ClientConfigs, group: str) -> None:
        self.orders = cluster.create_topic()
        self.invoices = cluster.create_topic()
        self.group = group
        self._settings = clients.aiokafka.admin()

    def serve(
        self, count: int, service: type[OrderService] = OrderService, *, settle_s: float = 0.0
    ) -> list[int]:
        """Run the service until there are `count` invoices, and return the ids of their orders.
        Wait `settle_s` for invoices that should not be there."""

        async def main() -> list[int]:
            running = asyncio.create_task(
                service(
                    orders=self.orders, invoices=self.invoices, group=self.group, **self._settings
                ).run()
            )
            try:
                await self._wait(lambda invoices: len(invoices) >= count)
                await asyncio.sleep(settle_s)
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
            return [invoice["order"] for invoice in await read_all(self.invoices, **self._settings)]

        return asyncio.run(main())

    async def _wait(self, condition: Callable[[list[Any]], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition(await read_all(self.invoices, **self._settings)):
            assert time.monotonic() < deadline, "the order service writes no invoices"


def order(number: int) -> bytes:
    return json.dumps({"id": number, "price": 5, "count": 2}).encode()
