"""Configurations of Kafka clients for a test cluster, by library.

    Producer(configs.confluent.producer())
    AIOKafkaConsumer(topic, **configs.aiokafka.consumer(group))
    KafkaConsumer(topic, **configs.kafka_python.consumer(group))
    spark.readStream.format("kafka").options(**configs.spark.source(topic))

Consumers begin at the earliest offset. Clients look for other brokers and new records sooner than
by the libraries' defaults: a test must not wait. Each method takes further settings, which override
these.
"""

from __future__ import annotations

from typing import Any

_FETCH_WAIT_MS = 50
_RECONNECT_MS, _RECONNECT_MAX_MS = 10, 200
_METADATA_AGE_MS = 1000
# How long a client waits for a broker that is paused or cut off before it asks another one.
_REQUEST_TIMEOUT_MS = 5000


class ClientConfigs:
    """`group` is that of consumers for which a test names none."""

    def __init__(self, bootstrap_servers: str, group: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.confluent = ConfluentConfigs(bootstrap_servers, group)
        self.kafka_python = KeywordConfigs(
            group,
            bootstrap_servers=bootstrap_servers.split(","),
            reconnect_backoff_ms=_RECONNECT_MS,
            reconnect_backoff_max_ms=_RECONNECT_MAX_MS,
        )
        self.aiokafka = KeywordConfigs(
            group, bootstrap_servers=bootstrap_servers, retry_backoff_ms=20
        )
        self.spark = SparkConfigs(bootstrap_servers)


class ConfluentConfigs:
    """For confluent-kafka: one dict, with names as in librdkafka."""

    def __init__(self, bootstrap_servers: str, group: str) -> None:
        self._group = group
        self._shared = {
            "bootstrap.servers": bootstrap_servers,
            "reconnect.backoff.ms": _RECONNECT_MS,
            "reconnect.backoff.max.ms": _RECONNECT_MAX_MS,
            "socket.timeout.ms": _REQUEST_TIMEOUT_MS,
        }

    def producer(self, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        return {
            **self._shared,
            "linger.ms": 0,
            "retry.backoff.ms": 20,
            "request.timeout.ms": _REQUEST_TIMEOUT_MS,
            **(settings or {}),
        }

    def consumer(
        self, group: str | None = None, settings: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return {
            **self._shared,
            "group.id": group or self._group,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": _FETCH_WAIT_MS,
            **(settings or {}),
        }

    def admin(self, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        return {**self._shared, **(settings or {})}


class KeywordConfigs:
    """For kafka-python and aiokafka: keyword arguments. `shared` are those of all clients."""

    def __init__(self, group: str, **shared: Any) -> None:
        self._group = group
        self._shared = {**shared, "metadata_max_age_ms": _METADATA_AGE_MS}

    def producer(self, **settings: Any) -> dict[str, Any]:
        return {**self._shared, "linger_ms": 0, **settings}

    def consumer(self, group: str | None = None, **settings: Any) -> dict[str, Any]:
        return {
            **self._shared,
            "group_id": group or self._group,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": _FETCH_WAIT_MS,
            **settings,
        }

    def admin(self, **settings: Any) -> dict[str, Any]:
        return {**self._shared, **settings}


class SparkConfigs:
    """Options of Spark's source and sink, for `format("kafka")` and `format("penstock")`."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._shared = {"kafka.bootstrap.servers": bootstrap_servers}

    def source(self, topic: str, **options: str) -> dict[str, str]:
        return {**self._shared, "subscribe": topic, "startingOffsets": "earliest", **options}

    def sink(self, topic: str, **options: str) -> dict[str, str]:
        return {**self._shared, "topic": topic, **options}
