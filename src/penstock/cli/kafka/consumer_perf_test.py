"""kafka-consumer-perf-test.sh: how many records a second a consumer of a group reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.session import given_settings, with_settings
from penstock.errors import KafkaError

if TYPE_CHECKING:
    from penstock.client.client import Client

_PURPOSE = "This tool is used to verify the consumer performance."
_OPTIONS = {
    "bootstrap-server": Option(
        "REQUIRED: The brokers to begin with.", "String: server to connect to"
    ),
    "topic": Option("REQUIRED: The topic to read.", "String: topic"),
    "messages": Option("The old name of --num-records.", "Long: count"),
    "num-records": Option("REQUIRED: How many records to read.", "Long: count"),
    "group": Option("The group to read as.", "String: gid"),
    "from-latest": Option("From the end, where the group has no offset yet."),
    "timeout": Option("Milliseconds without a record after which it ends.", "Long: milliseconds"),
    "fetch-size": Option("The bytes of a fetch of one partition.", "Integer: size"),
    "hide-header": Option("Without the line of names."),
    "show-detailed-stats": Option("A line for each reporting interval."),
    "reporting-interval": Option("Milliseconds between lines.", "Long: interval_ms"),
    "consumer.config": Option("The old name of --command-config.", "String: config file"),
    "command-config": Option("A file with settings of the consumer.", "String: config file"),
    "command-property": Option("A setting of the consumer: name=value.", "String: prop"),
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
    topic, wanted = (
        options.value("topic") or "",
        options.number("num-records") or options.number("messages") or 0,
    )
    group = options.value("group") or f"perf-consumer-{client.cluster.world.rng.randrange(100_000)}"
    timeout_s, interval_s = (
        (options.number("timeout") or 10_000) / 1000,
        (options.number("reporting-interval") or 5_000) / 1000,
    )
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
        count = size = told_count = told_size = 0
        last = told = started
        while count < wanted and clock.monotonic() - last < timeout_s:
            records = await consumer.poll()
            now = clock.monotonic()
            if records:
                last = now
            count += len(records)
            size += sum(len(one.key or b"") + len(one.value or b"") for one in records)
            if detailed and now - told >= interval_s:
                print(
                    _line(
                        f"{_time(datetime.now())}, 0",
                        count - told_count,
                        size - told_size,
                        now - told,
                        0.0,
                    )
                )
                told, told_count, told_size = now, count, size
        ended, seconds = datetime.now(), clock.monotonic() - started
        if count < wanted:
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
