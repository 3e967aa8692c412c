"""The kafka.* options, Kafka client settings that the source and the sink apply, ignore or refuse.
Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.client.bootstrap import parse_bootstrap
from penstock.client.offsets import IsolationLevel
from penstock.client.security import InvalidSecurity, check_security, is_security_setting
from penstock.client.servers import security_of
from penstock.records.compression import Codec
from penstock.spark.options.values import OptionError, bool_option, int_option

PREFIX = "kafka."

_SHARED = {
    "bootstrap.servers",
    "client.id",
    "default.api.timeout.ms",
    "request.timeout.ms",
    "security.protocol",
}
_SOURCE = _SHARED | {
    "fetch.max.wait.ms",
    "isolation.level",
    "max.partition.fetch.bytes",
    "metadata.max.age.ms",
}
_SINK = _SHARED | {
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


# Valid settings of Kafka's clients that have no counterpart here. They are accepted, so that a job
# written for Spark's own connector runs unchanged.
_SHARED_IGNORED = _names("""
    auto.include.jmx.reporter client.dns.lookup client.rack connections.max.idle.ms
    enable.metrics.push metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
    retry.backoff.max.ms retry.backoff.ms security.providers send.buffer.bytes
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
""")
_SOURCE_IGNORED = _names("""
    allow.auto.create.topics auto.commit.interval.ms check.crcs exclude.internal.topics
    fetch.max.bytes fetch.min.bytes group.id group.instance.id group.protocol heartbeat.interval.ms
    max.poll.interval.ms max.poll.records partition.assignment.strategy session.timeout.ms
""")
_SINK_IGNORED = _names("""
    linger.ms max.block.ms max.in.flight.requests.per.connection metadata.max.idle.ms
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms retries
""")

_OFFSETS_IN_CHECKPOINT = "Spark keeps offsets in the checkpoint; remove this option"
_BYTES = "keys and values are binary columns; convert them with DataFrame functions"
_NO_CLASSES = "Java classes cannot be loaded; remove this option"
_REFUSED_BY_SOURCE = {
    "auto.offset.reset": "use the option startingOffsets",
    "enable.auto.commit": _OFFSETS_IN_CHECKPOINT,
    "interceptor.classes": _NO_CLASSES,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
}
_REFUSED_BY_SINK = {
    "interceptor.classes": _NO_CLASSES,
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "partitioner.class": (
        "rows with a key are partitioned by murmur2, Kafka's default; for another partitioning "
        "set the column partition"
    ),
    "transactional.id": "the sink chooses its own; use the option sinkName",
}


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """`api_timeout_s` bounds retries of requests that fail with a retriable error, such as a leader
    that moves or a broker that restarts. `known_brokers` are addresses that a planner found, for
    its tasks; clients with different ones are equal. `security` has security.protocol, sasl.* and
    ssl.*, which are not shown."""

    bootstrap_servers: str
    client_id: str
    request_timeout_s: float
    api_timeout_s: float
    known_brokers: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The settings that have an effect, without the prefix."""

    settings: Mapping[str, str] = field(repr=False)

    @classmethod
    def of_source(cls, options: Mapping[str, str]) -> KafkaOptions:
        ignored = (_SHARED_IGNORED | _SOURCE_IGNORED) - _SOURCE
        return cls(_select(options, _SOURCE, ignored, _REFUSED_BY_SOURCE))

    @classmethod
    def of_sink(cls, options: Mapping[str, str]) -> KafkaOptions:
        return cls(_select(options, _SINK, _SHARED_IGNORED | _SINK_IGNORED, _REFUSED_BY_SINK))

    def connection(self) -> ConnectionOptions:
        return ConnectionOptions(
            bootstrap_servers=self._bootstrap_servers(),
            client_id=self.settings.get("client.id", "penstock-spark"),
            request_timeout_s=self.integer("request.timeout.ms", default=30_000, minimum=1) / 1000,
            api_timeout_s=self.integer("default.api.timeout.ms", default=60_000, minimum=1) / 1000,
            security=self._security(),
        )

    def integer(self, name: str, *, default: int, minimum: int) -> int:
        value = int_option(
            {PREFIX + name: self.settings.get(name, str(default))},
            PREFIX + name,
            minimum=minimum,
            maximum=2**31 - 1,
        )
        return default if value is None else value

    def isolation(self) -> IsolationLevel:
        """read_committed is the default, unlike in Spark's own connector."""
        levels = ("read_committed", "read_uncommitted")
        return IsolationLevel[self._choice("isolation.level", "read_committed", levels).upper()]

    def codec(self) -> Codec:
        codecs = tuple(codec.name.lower() for codec in Codec)
        return Codec[self._choice("compression.type", "lz4", codecs).upper()]

    def acks(self) -> int:
        return 1 if self._choice("acks", "all", ("all", "-1", "1")) == "1" else -1

    def idempotent(self, acks: int) -> bool:
        """Return enable.idempotence; its default is true with acks=all."""
        name = "enable.idempotence"
        enabled = bool_option(
            {PREFIX + name: self.settings.get(name, str(acks == -1))}, PREFIX + name, default=True
        )
        if enabled and acks != -1:
            raise OptionError(
                "kafka.enable.idempotence=true requires kafka.acks=all: remove one of the two"
            )
        return enabled

    def _security(self) -> tuple[tuple[str, str], ...]:
        security = {
            name: value for name, value in self.settings.items() if is_security_setting(name)
        }
        try:
            check_security(security)
        except InvalidSecurity as error:
            raise OptionError(f"{PREFIX}{error}") from None
        return tuple(sorted(security.items()))

    def _bootstrap_servers(self) -> str:
        servers = self.settings.get("bootstrap.servers")
        if servers is None:
            raise OptionError(
                "the option kafka.bootstrap.servers is missing: set it to brokers as host:port, "
                "separated by commas"
            )
        try:
            parse_bootstrap(servers)
        except ValueError as error:
            raise OptionError(f"kafka.bootstrap.servers is {servers!r}: {error}") from error
        return servers

    def _choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.settings.get(name, default).strip().lower()
        if value not in choices:
            raise OptionError(
                f"{PREFIX}{name} is {self.settings[name]!r}, but must be one of "
                f"{', '.join(choices)}"
            )
        return value


def broker_options(bootstrap_servers: str) -> dict[str, str]:
    """Return the kafka.* options of bootstrap servers, and of the security of their client."""
    security = security_of(bootstrap_servers)
    return {
        f"{PREFIX}bootstrap.servers": str(bootstrap_servers),
        **{
            f"{PREFIX}{name}": value
            for name, value in security.items()
            if is_security_setting(name)
        },
    }


def _select(
    options: Mapping[str, str],
    known: set[str],
    ignored: frozenset[str],
    refused: Mapping[str, str],
) -> dict[str, str]:
    """Return the known kafka.* options without their prefix."""
    settings = {}
    for key, value in options.items():
        name = key.lower().removeprefix(PREFIX)
        if name == key.lower() or name in ignored:
            continue
        if name in refused:
            raise OptionError(f"{PREFIX}{name} is not supported: {refused[name]}")
        if name not in known and not is_security_setting(name):
            similar = difflib.get_close_matches(name, [*known, *ignored], n=1)
            advice = f"did you mean {PREFIX}{similar[0]}?" if similar else "remove it"
            raise OptionError(f"{PREFIX}{name} is not a known client setting: {advice}")
        settings[name] = value
    return settings
