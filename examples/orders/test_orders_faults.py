"""What goes wrong in production, on a real cluster. Customers use aiokafka."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from orders import ImpatientOrderService
from shop import Shop, order

from penstock.testing import ClientConfigs, ProcessCluster


def place(clients: ClientConfigs, topic: str, *numbers: int) -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(**clients.aiokafka.producer())
        await producer.start()
        try:
            for number in numbers:
                await producer.send_and_wait(topic, order(number))
        finally:
            await producer.stop()

    asyncio.run(main())


def test_an_error_of_the_broker_is_retried(
    shop: Shop, penstock_clients: ClientConfigs, penstock_cluster: ProcessCluster
) -> None:
    place(penstock_clients, shop.orders, 1, 2)
    fault = penstock_cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
    assert shop.serve(2) == [1, 2]
    assert fault.uses == 2


def test_a_lost_response_makes_no_second_invoice(
    shop: Shop, penstock_clients: ClientConfigs, penstock_cluster: ProcessCluster
) -> None:
    place(penstock_clients, shop.orders, 1, 2)
    fault = penstock_cluster.disconnect("Produce", after=True)
    assert shop.serve(2, settle_s=0.5) == [1, 2]
    assert fault.uses == 1


def test_a_slow_broker_makes_no_second_invoice(
    shop: Shop, penstock_clients: ClientConfigs, penstock_cluster: ProcessCluster
) -> None:
    place(penstock_clients, shop.orders, 1)
    penstock_cluster.delay("Produce", 1500, times=1)
    assert shop.serve(1, settle_s=1.0) == [1]


def test_the_impatient_service_writes_an_invoice_twice(
    shop: Shop, penstock_clients: ClientConfigs, penstock_cluster: ProcessCluster
) -> None:
    """This test knows the bug. test_orders_simulated.py finds it."""
    place(penstock_clients, shop.orders, 1)
    penstock_cluster.delay("Produce", 1500, times=1)
    assert shop.serve(2, ImpatientOrderService) == [1, 1]


@pytest.mark.penstock(brokers=3)
def test_the_service_survives_its_leader(
    shop: Shop, penstock_clients: ClientConfigs, penstock_cluster: ProcessCluster
) -> None:
    place(penstock_clients, shop.orders, 1, 2)
    assert shop.serve(2) == [1, 2]
    penstock_cluster.kill(penstock_cluster.leader(shop.invoices))
    place(penstock_clients, shop.orders, 3)
    assert shop.serve(3) == [1, 2, 3]
