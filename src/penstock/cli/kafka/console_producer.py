"""kafka-console-producer.sh: a record for each line of standard input."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.producer_options import producer_options
from penstock.cli.kafka.session import given_settings, with_settings
from penstock.cli.produce import read_lines
from penstock.errors import KafkaError

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.producer.accumulator import RecordMetadata
    from penstock.records.record import Headers

_PURPOSE = "This tool helps to read data from standard input and publish it to Kafka."
_OPTIONS = {
    "bootstrap-server": Option(
        "REQUIRED: The brokers to begin with.", "String: server to connect to"
    ),
    "topic": Option("REQUIRED: The topic to write to.", "String: topic"),
    "sync": Option("Wait for each record before the next."),
    "compression-codec": Option(
        "none, gzip, snappy, lz4 or zstd; gzip where none is named.",
        "String: compression-codec",
        optional=True,
    ),
    "batch-size": Option("The bytes of a batch.", "Integer: size"),
    "timeout": Option("Milliseconds that a batch waits for more.", "Long: timeout_ms"),
    "request-required-acks": Option("-1 or all, 0, 1.", "String: request required acks"),
    "request-timeout-ms": Option("How long an answer may take.", "Integer: request timeout ms"),
    "max-memory-bytes": Option("The bytes that may wait.", "Long: total memory in bytes"),
    "property": Option("The old name of --reader-property.", "String: prop"),
    "reader-property": Option(
        (
            "parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, "
            "headers.key.separator, null.marker, ignore.error."
        ),
        "String: prop",
    ),
    "producer-property": Option("The old name of --command-property.", "String: producer_prop"),
    "command-property": Option("A setting of the producer: name=value.", "String: producer_prop"),
    "producer.config": Option("The old name of --command-config.", "String: config file"),
    "command-config": Option("A file with settings of the producer.", "String: config file"),
}
_TRUE = "true"
_AS_SETTINGS = {
    "batch-size": "batch.size",
    "timeout": "linger.ms",
    "request-required-acks": "acks",
    "max-memory-bytes": "buffer.memory",
}
# What Kafka's tool lingers for.
_LINGER_MS = "1000"


@dataclass(frozen=True, slots=True)
class LineReader:
    """Headers, key and value of a line, as Kafka's LineMessageReader finds them."""

    parse_key: bool = False
    key_separator: bytes = b"\t"
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    ignore_error: bool = False
    null_marker: bytes | None = None

    @staticmethod
    def of(settings: Mapping[str, str]) -> LineReader:
        def flag(name: str) -> bool:
            return settings.get(name, "").strip().lower() == _TRUE

        def text(name: str, default: bytes) -> bytes:
            return settings[name].encode() if name in settings else default

        return LineReader(
            flag("parse.key"),
            text("key.separator", b"\t"),
            flag("parse.headers"),
            text("headers.delimiter", b"\t"),
            text("headers.separator", b","),
            text("headers.key.separator", b":"),
            flag("ignore.error"),
            settings["null.marker"].encode() if "null.marker" in settings else None,
        )

    def record(self, line: bytes, number: int) -> tuple[bytes | None, bytes | None, Headers]:
        rest, headers = line, b""
        key: bytes | None = None
        if self.parse_headers:
            headers, rest = self._split(rest, self.headers_delimiter, number, "headers delimiter")
        if self.parse_key:
            key, rest = self._split(rest, self.key_separator, number, "key separator")
        return self._or_null(key), self._or_null(rest), self._headers(headers, number)

    def _split(self, line: bytes, by: bytes, number: int, what: str) -> tuple[bytes, bytes]:
        first, found, rest = line.partition(by)
        if found:
            return first, rest
        if self.ignore_error:
            return b"", line
        raise Refused(f"No {what} found on line number {number}: '{line.decode(errors='replace')}'")

    def _headers(self, text: bytes, number: int) -> Headers:
        if not text or text == self.null_marker:
            return ()
        found = []
        for pair in text.split(self.headers_separator):
            key, value = self._split(
                pair, self.headers_key_separator, number, "header key separator"
            )
            found.append((key.decode(errors="replace"), self._or_null(value)))
        return tuple(found)

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data == self.null_marker else data


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    try:
        options = Options(_OPTIONS, words, _PURPOSE)
        options.require("topic")
        if not options.has("bootstrap-server"):
            options.usage('Missing required argument "[bootstrap-server]"')
        file = "command-config" if options.has("command-config") else "producer.config"
        settings = given_settings(options, file, "producer-property", "command-property")
        reader = LineReader.of(given_settings(options, None, "property", "reader-property"))
        with_settings(
            options.value("bootstrap-server") or "",
            settings,
            lambda client: _produce(client, options, settings, reader),
        )
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    except KafkaError as error:
        print(java_text(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def _produce(
    client: Client, options: Options, settings: Mapping[str, str], reader: LineReader
) -> None:
    topic = options.value("topic") or ""
    failed: list[BaseException] = []

    def done(future: asyncio.Future[RecordMetadata]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            failed.append(error)
            text = java_text(error) if isinstance(error, KafkaError) else str(error)
            print(f"Error when sending message to topic {topic}: {text}", file=sys.stderr)

    async with client.producer(**_producer_options(options, settings)) as producer:
        number = 0
        _prompt()
        async for line in read_lines(sys.stdin.buffer):
            number += 1
            key, value, headers = reader.record(line, number)
            future = await producer.send(topic, value, key=key, headers=headers)
            future.add_done_callback(done)
            if options.has("sync"):
                await asyncio.wait([future])
            _prompt()


def _prompt() -> None:
    if sys.stdin.isatty():
        print(">", end="", flush=True)


def _producer_options(options: Options, settings: Mapping[str, str]) -> dict[str, object]:
    """The options are other names of settings, and go before them."""
    given = {
        name: value
        for option, name in _AS_SETTINGS.items()
        if (value := options.value(option)) is not None
    }
    if options.has("compression-codec"):
        given["compression.type"] = options.value("compression-codec") or "gzip"
    return producer_options({"linger.ms": _LINGER_MS, **settings, **given})
