"""kafka-producer-perf-test.sh: measure the throughput and latency of a producer."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Refused, argument_parser
from penstock.cli.kafka.producer_options import producer_options
from penstock.cli.kafka.session import read_settings, with_settings
from penstock.errors import KafkaError

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.producer.accumulator import RecordMetadata

_MEGABYTE = 1024 * 1024
_PERCENTILES = (0.5, 0.95, 0.99, 0.999)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    arguments = _parser().parse_args(words)
    try:
        settings = read_settings(arguments.producer_config) if arguments.producer_config else {}
        for text in arguments.producer_props or ():
            name, equals, value = text.partition("=")
            if not equals:
                raise Refused(f"Invalid property: {text}")
            settings[name] = value
        bootstrap = arguments.bootstrap_server or settings.get("bootstrap.servers")
        if not bootstrap:
            raise Refused(
                "At least one of --bootstrap-server and bootstrap.servers in --command-property "
                "or --command-config is required"
            )
        with_settings(bootstrap, settings, lambda client: _produce(client, arguments, settings))
    except (Refused, KafkaError) as error:
        print(java_text(error) if isinstance(error, KafkaError) else error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argument_parser(
        "producer-performance", "This tool is used to verify the producer performance."
    )
    parser.add_argument("--topic", required=True, help="The topic to write to.")
    parser.add_argument("--bootstrap-server", help="Bootstrap brokers.")
    parser.add_argument("--num-records", required=True, type=int, help="The number of records.")
    parser.add_argument(
        "--throughput",
        required=True,
        type=float,
        help="The maximum number of records per second; -1 is unlimited.",
    )
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=int, help="The record size in bytes.")
    payload.add_argument(
        "--payload-file", help="A file whose lines are used as records, in random order."
    )
    payload.add_argument(
        "--payload-monotonic", action="store_true", help="Use increasing numbers as records."
    )
    parser.add_argument(
        "--payload-delimiter", default="\\n", help="Separates the records of a payload file."
    )
    parser.add_argument(
        "--producer-props",
        "--command-property",
        nargs="+",
        metavar="NAME=VALUE",
        help="Producer properties.",
    )
    parser.add_argument(
        "--producer.config",
        "--command-config",
        dest="producer_config",
        help="A properties file for the producer.",
    )
    parser.add_argument(
        "--reporting-interval", type=int, default=5_000, help="Milliseconds between lines."
    )
    return parser


class Stats:
    """Latencies in milliseconds, since the start and since the last reported line."""

    def __init__(self, started: float) -> None:
        self._latencies: list[int] = []
        self._reported, self._reported_at = 0, started
        self._bytes, self._bytes_reported = 0, 0
        self._started = started

    def record(self, sent_at: float, size: int, now: float) -> None:
        self._latencies.append(round((now - sent_at) * 1000))
        self._bytes += size

    def window(self, now: float) -> str:
        recent = self._latencies[self._reported :]
        seconds = now - self._reported_at
        line = self._line(len(recent), self._bytes - self._bytes_reported, seconds, recent)
        self._reported, self._reported_at = len(self._latencies), now
        self._bytes_reported = self._bytes
        return f"{line}."

    def total(self, now: float) -> str:
        line = self._line(len(self._latencies), self._bytes, now - self._started, self._latencies)
        ordered = sorted(self._latencies) or [0]
        percentiles = ", ".join(
            f"{ordered[int(share * len(ordered))]} ms {share * 100:g}th" for share in _PERCENTILES
        )
        return f"{line}, {percentiles}."

    def _line(self, count: int, size: int, seconds: float, latencies: list[int]) -> str:
        rate, megabytes = count / max(seconds, 1e-9), size / _MEGABYTE / max(seconds, 1e-9)
        mean, worst = sum(latencies) / max(len(latencies), 1), max(latencies, default=0)
        return (
            f"{count} records sent, {rate:.1f} records/sec ({megabytes:.2f} MB/sec), "
            f"{mean:.1f} ms avg latency, {worst:.1f} ms max latency"
        )


async def _produce(client: Client, arguments: argparse.Namespace, settings: dict[str, str]) -> None:
    world = client.cluster.world
    payloads = _payloads(arguments)
    started = world.clock.monotonic()
    stats, reported_at = Stats(started), started
    async with client.producer(**producer_options(settings)) as producer:
        for number in range(arguments.num_records):
            value = (
                str(number).encode()
                if arguments.payload_monotonic
                else payloads[world.rng.randrange(len(payloads))]
            )
            now = world.clock.monotonic()
            future = await producer.send(arguments.topic, value)

            def done(
                delivery: asyncio.Future[RecordMetadata],
                sent_at: float = now,
                size: int = len(value),
            ) -> None:
                if (error := delivery.exception()) is not None:
                    print(f"error when sending: {error}", file=sys.stderr)
                else:
                    stats.record(sent_at, size, world.clock.monotonic())

            future.add_done_callback(done)
            if (
                arguments.throughput > 0
                and (ahead := started + number / arguments.throughput - now) > 0
            ):
                await asyncio.sleep(ahead)
            if now - reported_at >= arguments.reporting_interval / 1000:
                reported_at = now
                print(stats.window(now))
    print(stats.total(world.clock.monotonic()))


def _payloads(arguments: argparse.Namespace) -> list[bytes]:
    if arguments.payload_file:
        try:
            text = Path(arguments.payload_file).read_text()
        except OSError as error:
            raise Refused(f"{arguments.payload_file}: {error.strerror or error}") from error
        lines = text.split(arguments.payload_delimiter.replace("\\n", "\n"))
        payloads = [line.encode() for line in lines if line]
        if not payloads:
            raise Refused("Payload file is empty.")
        return payloads
    # Letters, as in Kafka's tool. Every record is the same, so that generating records is not
    # part of the measurement.
    return [bytes(65 + index * 7 % 26 for index in range(arguments.record_size or 0))]
