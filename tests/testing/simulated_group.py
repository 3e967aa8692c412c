"""Runs a seed with a producer and two consumers of aiokafka, and prints all that they see.

PYTHONHASHSEED=0 python -m tests.testing.simulated_group SEED
"""

from __future__ import annotations

import asyncio
import logging
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from penstock.testing.simulation import SimulatedCluster, simulate
from penstock.world import World

FAULTS = ("kill", "pause", "cut", "reset")
TOPICS = {"orders": 6, "payments": 3}


async def shop(_world: World, cluster: SimulatedCluster) -> None:
    def see(*words: object) -> None:
        sys.stdout.write(f"{cluster.simulation.now():.6f} {' '.join(map(str, words))}\n")

    async def consume(name: str) -> None:
        consumer = AIOKafkaConsumer(
            *TOPICS,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="shop",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            async for record in consumer:
                place = record.topic, record.partition, record.offset
                see(name, *place, record.value, record.timestamp)
        finally:
            await consumer.stop()

    for topic, partitions in TOPICS.items():
        await cluster.create_topic(topic, partitions=partitions)
    consumers = [asyncio.create_task(consume(name)) for name in ("a", "b")]
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True
    )
    await producer.start()
    for number in range(60):
        topic = cluster.rng.choice(list(TOPICS))
        sent = await producer.send_and_wait(topic, b"%d" % number)
        see("sent", topic, sent.partition, sent.offset, sent.timestamp)
        await asyncio.sleep(cluster.rng.uniform(0, 0.5))
    await producer.stop()
    await cluster.calm()
    await asyncio.sleep(10)
    for consumer in consumers:
        consumer.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)
    for event in cluster.events:
        see(event)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    simulate(shop, int(sys.argv[1]), brokers=3, faults=FAULTS)
