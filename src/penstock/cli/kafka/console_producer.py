"""kafka-console-producer.sh: write each line of standard input as a record."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.producer_options import producer_options
from penstock.cli.kafka.session import exclude_both, given_settings, with_settings
from penstock.cli.produce import read_lines
from penstock.errors import KafkaError

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.producer.accumulator import RecordMetadata
    from penstock.records.record import Headers

_PURPOSE = "This tool helps to read data from standard input and publish it to Kafka."
_OPTIONS = {
    "bootstrap-server": Option("REQUIRED: Bootstrap brokers.", "String: server to connect to"),
    "topic": Option("REQUIRED: The topic to write to.", "String: topic"),
    "sync": Option("Wait for each record's acknowledgement."),
    "compression-codec": Option(
        "none, gzip, snappy, lz4 or zstd; gzip if the argument is missing.",
        "String: compression-codec",
        optional=True,
    ),
    "batch-size": Option("The batch size in bytes.", "Integer: size"),
    "timeout": Option(
        "How long a batch waits for more records, in milliseconds.", "Long: timeout_ms"
    ),
    "request-required-acks": Option("all (-1), 0 or 1.", "String: request required acks"),
    "request-timeout-ms": Option("The request timeout.", "Integer: request timeout ms"),
    "max-memory-bytes": Option("The buffer memory in bytes.", "Long: total memory in bytes"),
    "property": Option("Deprecated; use --reader-property.", "String: prop"),
    "reader-property": Option(
        "parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, "
        "headers.key.separator, null.marker, ignore.error.",
        "String: prop",
    ),
    "producer-property": Option("Deprecated; use --command-property.", "String: producer_prop"),
    "command-property": Option("A producer property: name=value.", "String: producer_prop"),
    "producer.config": Option("Deprecated; use --command-config.", "String: config file"),
    "command-config": Option("A properties file for the producer.", "String: config file"),
}
_TRUE = "true"
_OPTION_SETTINGS = {
    "batch-size": "batch.size",
    "timeout": "linger.ms",
    "request-required-acks": "acks",
    "max-memory-bytes": "buffer.memory",
}
# The linger.ms of Kafka's tool.
_LINGER_MS = "1000"


@dataclass(frozen=True, slots=True)
class LineReader:
    """Parses headers, key and value of a line as Kafka's LineMessageReader does."""

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

    def _split(
        self, line: bytes, separator: bytes, number: int, separator_name: str
    ) -> tuple[bytes, bytes]:
        first, found, rest = line.partition(separator)
        if found:
            return first, rest
        if self.ignore_error:
            return b"", line
        text = line.decode(errors="replace")
        raise Refused(f"No {separator_name} found on line number {number}: '{text}'")

    def _headers(self, text: bytes, number: int) -> Headers:
        if not text or text == self.null_marker:
            return ()
        headers = []
        for pair in text.split(self.headers_separator):
            key, value = self._split(
                pair, self.headers_key_separator, number, "header key separator"
            )
            headers.append((key.decode(errors="replace"), self._or_null(value)))
        return tuple(headers)

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
        exclude_both(options, "producer.config", "command-config")
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
    """Return the producer's options; command line options override the properties."""
    given = {
        name: value
        for option, name in _OPTION_SETTINGS.items()
        if (value := options.value(option)) is not None
    }
    if options.has("compression-codec"):
        given["compression.type"] = options.value("compression-codec") or "gzip"
    return producer_options({"linger.ms": _LINGER_MS, **settings, **given})
