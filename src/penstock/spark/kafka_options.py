"""The kafka.* options: which client settings mean something here, which are taken and mean nothing,
and which are refused. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.bootstrap import parse_bootstrap
from penstock.client.offsets import Isolation
from penstock.records.compression import Codec
from penstock.spark.option_values import OptionError, flag, whole

PREFIX = "kafka."

_COMMON = {
    "bootstrap.servers",
    "client.id",
    "default.api.timeout.ms",
    "request.timeout.ms",
    "security.protocol",
}
_SOURCE = _COMMON | {"fetch.max.wait.ms", "isolation.level", "max.partition.fetch.bytes"}
_SINK = _COMMON | {
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "max.request.size",
}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Settings of Kafka's own clients that tune what is not here, or what goes by itself: a job that
# gives them means no harm.
_COMMON_WITHOUT_EFFECT = _names("""
    auto.include.jmx.reporter client.dns.lookup client.rack connections.max.idle.ms enable.metrics.push metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms
    security.providers send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
""")
_SOURCE_WITHOUT_EFFECT = _names("""
    allow.auto.create.topics auto.commit.interval.ms check.crcs exclude.internal.topics fetch.max.bytes fetch.min.bytes group.id
    group.instance.id group.protocol heartbeat.interval.ms max.poll.interval.ms max.poll.records partition.assignment.strategy
    session.timeout.ms
""")
_SINK_WITHOUT_EFFECT = _names("""
    linger.ms max.block.ms max.in.flight.requests.per.connection metadata.max.idle.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms retries
""")

_NOT_SPARKS = "what is read is kept in Spark's checkpoint; leave it out"
_BYTES = "keys and values are bytes; cast or parse them with DataFrame functions"
_REFUSED_BY_SOURCE = {
    "auto.offset.reset": "use the option startingOffsets",
    "enable.auto.commit": _NOT_SPARKS,
    "interceptor.classes": "Java classes cannot be loaded here; leave it out",
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
}
_REFUSED_BY_SINK = {
    "interceptor.classes": "Java classes cannot be loaded here; leave it out",
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "partitioner.class": (
        "rows with a key go by its murmur2, as with Kafka's default; for another "
        "choice have a column partition"
    ),
    "transactional.id": "the sink writes at least once; leave it out",
}


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Those that mean something, without their prefix."""

    given: Mapping[str, str]

    @classmethod
    def of_source(cls, options: Mapping[str, str]) -> KafkaOptions:
        return cls(
            _read(
                options,
                _SOURCE,
                _COMMON_WITHOUT_EFFECT | _SOURCE_WITHOUT_EFFECT,
                _REFUSED_BY_SOURCE,
            )
        )

    @classmethod
    def of_sink(cls, options: Mapping[str, str]) -> KafkaOptions:
        return cls(
            _read(options, _SINK, _COMMON_WITHOUT_EFFECT | _SINK_WITHOUT_EFFECT, _REFUSED_BY_SINK)
        )

    def whole(self, name: str, *, default: int, least: int) -> int:
        found = whole(
            {PREFIX + name: self.given.get(name, str(default))},
            PREFIX + name,
            least=least,
            most=2**31 - 1,
        )
        return default if found is None else found

    def bootstrap_servers(self) -> str:
        servers = self.given.get("bootstrap.servers")
        if servers is None:
            raise OptionError(
                "the option kafka.bootstrap.servers is missing: give the brokers as host:port, "
                "separated by commas"
            )
        try:
            parse_bootstrap(servers)
        except ValueError as error:
            raise OptionError(f"kafka.bootstrap.servers is {servers!r}: {error}") from error
        return servers

    def isolation(self) -> Isolation:
        """Committed alone by default, unlike Spark's source."""
        return Isolation[
            self._one_of(
                "isolation.level", "read_committed", ("read_committed", "read_uncommitted")
            ).upper()
        ]

    def codec(self) -> Codec:
        return Codec[
            self._one_of(
                "compression.type", "lz4", tuple(one.name.lower() for one in Codec)
            ).upper()
        ]

    def acks(self) -> int:
        return 1 if self._one_of("acks", "all", ("all", "-1", "1")) == "1" else -1

    def idempotent(self, acks: int) -> bool:
        name = "enable.idempotence"
        asked = flag(
            {PREFIX + name: self.given.get(name, str(acks == -1))}, PREFIX + name, default=True
        )
        if asked and acks != -1:
            raise OptionError(
                "kafka.enable.idempotence needs kafka.acks=all: leave one of the two out"
            )
        return asked

    def _one_of(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        found = self.given.get(name, default).strip().lower()
        if found not in choices:
            raise OptionError(
                f"{PREFIX}{name} is {self.given[name]!r}: one of {', '.join(choices)} is expected"
            )
        return found


def _read(
    options: Mapping[str, str],
    known: set[str],
    without_effect: frozenset[str],
    refused: Mapping[str, str],
) -> dict[str, str]:
    given = {}
    for key, value in options.items():
        name = key.lower().removeprefix(PREFIX)
        if name == key.lower() or name in without_effect:
            continue
        if name in refused:
            raise OptionError(f"{PREFIX}{name} cannot be used with penstock: {refused[name]}")
        if name.startswith(("sasl.", "ssl.")) or (
            name == "security.protocol" and value.strip().upper() != "PLAINTEXT"
        ):
            raise OptionError(
                f"{PREFIX}{name} asks for security, which this source and sink do not have yet: "
                "use a PLAINTEXT listener"
            )
        if name not in known:
            near = difflib.get_close_matches(name, [*known, *without_effect], n=1)
            advice = f"is {PREFIX}{near[0]} meant?" if near else "leave it out"
            raise OptionError(f"{PREFIX}{name} is no setting that is known here: {advice}")
        given[name] = value
    return given
