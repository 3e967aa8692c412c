"""kafka-consumer-perf-test.sh: measure the throughput of a group's consumer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.session import exclude_both, given_settings, with_settings
from penstock.errors import KafkaError

if TYPE_CHECKING:
    from penstock.client.client import Client

_PURPOSE = "This tool is used to verify the consumer performance."
_OPTIONS = {
    "bootstrap-server": Option("REQUIRED: Bootstrap brokers.", "String: server to connect to"),
    "topic": Option("REQUIRED: The topic to consume.", "String: topic"),
    "messages": Option("Deprecated; use --num-records.", "Long: count"),
    "num-records": Option("REQUIRED: The number of records to consume.", "Long: count"),
    "group": Option("The consumer group.", "String: gid"),
    "from-latest": Option("Start at the end if the group has no committed offset."),
    "timeout": Option("Exit if no record arrives for this time.", "Long: milliseconds"),
    "fetch-size": Option("The bytes to fetch per partition.", "Integer: size"),
    "hide-header": Option("Omit the header line."),
    "show-detailed-stats": Option("Print a line per reporting interval."),
    "reporting-interval": Option("Milliseconds between lines.", "Long: interval_ms"),
    "consumer.config": Option("Deprecated; use --command-config.", "String: config file"),
    "command-config": Option("A properties file for the consumer.", "String: config file"),
    "command-property": Option("A consumer property: name=value.", "String: prop"),
}
_FIGURES = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
_HEADER, _DETAILED = f"start.time, end.time, {_FIGURES}", f"time, threadId, {_FIGURES}"
_MEGABYTE = 1024 * 1024


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    try:
        options = Options(_OPTIONS, words, _PURPOSE)
        options.require("bootstrap-server", "topic")
        if not options.has("num-records", "messages"):
            options.usage('Missing required argument "[num-records]"')
        exclude_both(options, "consumer.config", "command-config")
        settings = given_settings(
            options,
            "command-config" if options.has("command-config") else "consumer.config",
            "command-property",
        )
        with_settings(
            options.value("bootstrap-server") or "",
            settings,
            lambda client: _consume(client, options),
        )
    except (Refused, KafkaError) as error:
        print(java_text(error) if isinstance(error, KafkaError) else error, file=sys.stderr)
        return 1
    return 0


async def _consume(client: Client, options: Options) -> None:
    from penstock.client.consumer.consumer import BEGINNING, END

    clock = client.cluster.world.clock
    topic = options.value("topic") or ""
    num_records = options.number("num-records") or options.number("messages") or 0
    group = options.value("group") or f"perf-consumer-{client.cluster.world.rng.randrange(100_000)}"
    timeout_s = (options.number("timeout") or 10_000) / 1000
    interval_s = (options.number("reporting-interval") or 5_000) / 1000
    detailed = options.has("show-detailed-stats")
    if not options.has("hide-header"):
        print(_DETAILED if detailed else _HEADER)
    await client.cluster.topic(topic)
    fetch_bytes = options.number("fetch-size") or _MEGABYTE
    async with client.group_consumer(
        group,
        [topic],
        start=END if options.has("from-latest") else BEGINNING,
        partition_max_bytes=fetch_bytes,
    ) as consumer:
        began, started = datetime.now(), clock.monotonic()
        count = size = reported_count = reported_size = 0
        last_record = reported = started
        while count < num_records and clock.monotonic() - last_record < timeout_s:
            records = await consumer.poll()
            now = clock.monotonic()
            if records:
                last_record = now
            count += len(records)
            size += sum(len(record.key or b"") + len(record.value or b"") for record in records)
            if detailed and now - reported >= interval_s:
                print(
                    _line(
                        f"{_time(datetime.now())}, 0",
                        count - reported_count,
                        size - reported_size,
                        now - reported,
                        0.0,
                    )
                )
                reported, reported_count, reported_size = now, count, size
        ended, seconds = datetime.now(), clock.monotonic() - started
        if count < num_records:
            print(
                "WARNING: Exiting before consuming the expected number of records: timeout "
                f"({timeout_s * 1000:g} ms) exceeded. "
                "You can use the --timeout option to increase the timeout."
            )
        if not detailed:
            print(
                _line(
                    f"{_time(began)}, {_time(ended)}", count, size, seconds, consumer.joined_after_s
                )
            )


def _line(times: str, count: int, size: int, seconds: float, joined_s: float) -> str:
    megabytes, fetching = size / _MEGABYTE, max(seconds - joined_s, 1e-9)
    return (
        f"{times}, {megabytes:.4f}, {megabytes / max(seconds, 1e-9):.4f}, {count}, "
        f"{count / max(seconds, 1e-9):.4f}, "
        f"{round(joined_s * 1000)}, {round(fetching * 1000)}, {megabytes / fetching:.4f}, "
        f"{count / fetching:.4f}"
    )


def _time(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S}:{when.microsecond // 1000:03d}"
