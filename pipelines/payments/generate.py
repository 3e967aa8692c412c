"""Sends the payments of a scenario to a topic at a steady rate, and saves what was sent:
python -m pipelines.payments.generate --help

Unacknowledged records delay later ones: while a partition has no leader, the other partitions do
not run ahead by more than `AHEAD_MS` of event time. No event arrives later than the pipeline's
watermark allows.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from penstock.client.client import Client
from penstock.client.producer.accumulator import RecordMetadata
from penstock.client.producer.producer import Producer
from penstock.errors import KafkaError
from penstock.records.compression import Codec
from penstock.world import World
from penstock.world.real import run
from pipelines.payments.events import Arrival, Payments, Scenario, closing
from pipelines.payments.truth import Truth

TOPIC = "payments"
AHEAD_MS = 2 * 60_000
_TICK_S = 0.02
_MAX_BURST = 200


@dataclass(slots=True)
class Acknowledgements:
    """Counts acknowledgements and measures the longest time without one in any partition: the
    duration of a failover."""

    world: World
    count: int = 0
    longest_pause_s: float = 0.0
    _last_s: dict[int, float] = field(default_factory=dict)

    def note(self, future: asyncio.Future[RecordMetadata]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        now_s, partition = self.world.clock.monotonic(), future.result().partition
        self.count += 1
        self.longest_pause_s = max(self.longest_pause_s, now_s - self._last_s.get(partition, now_s))
        self._last_s[partition] = now_s


async def send(
    client: Client,
    scenario: Scenario,
    *,
    topic: str = TOPIC,
    rate: int = 0,
    settle: Callable[[], Awaitable[object]] | None = None,
) -> Truth:
    """Send all events and wait for their acknowledgements. The closing events follow after
    `settle`. A rate of 0 is unlimited."""
    world, truth = client.cluster.world, Truth()
    acknowledgements = Acknowledgements(world)
    started_s = world.clock.monotonic()
    async with client.producer(codec=Codec.ZSTD) as producer:
        sender = _Sender(producer, topic, truth, acknowledgements)
        arrivals = iter(Payments(scenario))
        while piece := list(
            islice(arrivals, _due(rate, world.clock.monotonic() - started_s, truth.records))
        ):
            await sender.send(piece)
            await asyncio.sleep(_TICK_S if rate else 0)
        await sender.drain()
        sender.report()
        seconds, pause_s = world.clock.monotonic() - started_s, acknowledgements.longest_pause_s
        if settle is not None:
            await settle()
        for partition in range(len((await client.cluster.topic(topic)).partitions)):
            await sender.send([closing(scenario, partition)], partition)
        await sender.drain()
    truth.delivery = {
        "acknowledged": acknowledgements.count,
        "seconds": seconds,
        "longest_pause_s": pause_s,
    }
    return truth


def _due(rate: int, elapsed_s: float, sent: int) -> int:
    """Return how many events to send next. At least one, since the end of the scenario shows only
    when the next event is requested. After a pause the backlog is sent in bursts."""
    return min(max(int(rate * elapsed_s) - sent, 1), _MAX_BURST) if rate else _MAX_BURST


class _Sender:
    def __init__(
        self, producer: Producer, topic: str, truth: Truth, acknowledgements: Acknowledgements
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._truth = truth
        self._acknowledgements = acknowledgements
        self._waiting: deque[tuple[int, asyncio.Future[RecordMetadata]]] = deque()
        self._reported_s = acknowledgements.world.clock.monotonic()

    async def send(self, arrivals: list[Arrival], partition: int | None = None) -> None:
        for arrival in arrivals:
            await self.drain(arrival.at_ms - AHEAD_MS)
            future = await self._producer.send(
                self._topic, arrival.value, key=arrival.key, partition=partition
            )
            future.add_done_callback(self._acknowledgements.note)
            self._waiting.append((arrival.at_ms, future))
            self._truth.add(arrival)
        if self._acknowledgements.world.clock.monotonic() >= self._reported_s + 1:
            self.report()

    async def drain(self, until_ms: int | None = None) -> None:
        """Wait until all records with an earlier arrival time are acknowledged. KafkaError if one
        could not be written."""
        while self._waiting and (until_ms is None or self._waiting[0][0] < until_ms):
            await self._waiting.popleft()[1]

    def report(self) -> None:
        self._reported_s = self._acknowledgements.world.clock.monotonic()
        typer.echo(f"{self._truth.records} sent, {self._acknowledgements.count} acknowledged")


def main(
    bootstrap_server: Annotated[
        str, typer.Option(help="Brokers to connect to first, as host:port.")
    ] = "localhost:9092",
    topic: Annotated[str, typer.Option(help="The topic to write to.")] = TOPIC,
    payments: Annotated[
        int, typer.Option(help="Number of ordinary payments, without refunds and fraud.")
    ] = 80_000,
    rate: Annotated[int, typer.Option(min=0, help="Events per second; 0 is unlimited.")] = 2_500,
    seed: Annotated[int, typer.Option(help="The same seed gives the same events.")] = 1,
    customers: Annotated[int, typer.Option(help="Number of customers.")] = 2_000,
    merchants: Annotated[int, typer.Option(help="Number of merchants.")] = 40,
    minutes: Annotated[int, typer.Option(help="Duration in event time.")] = 60,
    truth: Annotated[Path, typer.Option(help="The file for what was sent.")] = Path(
        "payments-truth.json"
    ),
    settle: Annotated[
        float, typer.Option(min=0, help="Seconds between the last payment and the closing events.")
    ] = 3.0,
    hold: Annotated[
        bool, typer.Option("--hold", help="Wait for a line of input before the closing events.")
    ] = False,
) -> None:
    """Generate payments, send them, and save the expected results."""

    async def pause() -> None:
        await (asyncio.to_thread(sys.stdin.readline) if hold else asyncio.sleep(settle))

    async def work(world: World) -> Truth:
        async with Client(world, bootstrap_server, client_id="payments-generator") as client:
            return await send(client, scenario, topic=topic, rate=rate, settle=pause)

    try:
        scenario = Scenario(payments, seed, customers, merchants, minutes)
        sent = run(work)
    except (KafkaError, ValueError) as error:
        typer.echo(f"payments: {error}", err=True)
        raise typer.Exit(1) from None
    sent.save(truth)
    typer.echo(
        f"{sent.records} sent, {sent.delivery['acknowledged']} acknowledged, in "
        f"{sent.delivery['seconds']:.1f} s"
    )


if __name__ == "__main__":
    typer.run(main)
