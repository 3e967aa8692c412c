"""The same service in a simulated world: from each seed follows another history of faults."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from orders import ImpatientOrderService, OrderService, read_all
from shop import order

from penstock.testing import SimulatedCluster, SimulationError, simulate
from penstock.world import World

ORDERS = 10
FAULTS = ("kill", "pause", "cut", "reset")


async def run_shop(cluster: SimulatedCluster, service: type[OrderService]) -> None:
    """Place orders, some of them twice, while the service runs under faults. Then each order must
    have one invoice."""
    servers = cluster.bootstrap_servers
    for topic in ("orders", "invoices"):
        await cluster.create_topic(topic)
    running = cluster.machine("service").start(service(servers, retry_backoff_ms=50).run())
    producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    await producer.start()
    for number in range(ORDERS):
        for _copy in range(cluster.rng.choice((1, 1, 2))):
            await producer.send_and_wait("orders", order(number))
        await asyncio.sleep(cluster.rng.uniform(0.0, 1.0))
    await producer.stop()
    await cluster.calm()
    invoiced: list[int] = []
    while len(set(invoiced)) < ORDERS:
        await asyncio.sleep(1.0)
        invoices = await read_all("invoices", bootstrap_servers=servers)
        invoiced = [invoice["order"] for invoice in invoices]
    running.cancel()
    await asyncio.wait([running])
    assert invoiced == list(range(ORDERS)), f"the invoices are for the orders {invoiced}"


async def good(_world: World, cluster: SimulatedCluster) -> None:
    await run_shop(cluster, OrderService)


async def impatient(_world: World, cluster: SimulatedCluster) -> None:
    await run_shop(cluster, ImpatientOrderService)


@pytest.mark.parametrize("seed", range(5))
def test_each_order_gets_one_invoice_whatever_happens(seed: int) -> None:
    simulate(good, seed, brokers=3, faults=FAULTS)


def test_a_seed_finds_the_bug_of_the_impatient_service() -> None:
    found = None
    for seed in range(60):
        try:
            simulate(impatient, seed, brokers=3, faults=FAULTS)
        except SimulationError as error:
            found = error
            break
    assert found is not None
    assert "the invoices are for the orders" in str(found)
    # The seed repeats the run, fault by fault.
    with pytest.raises(SimulationError) as again:
        simulate(impatient, found.seed, brokers=3, faults=FAULTS)
    assert again.value.events == found.events
