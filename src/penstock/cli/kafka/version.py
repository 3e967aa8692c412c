"""The release of Apache Kafka whose tools these are."""

from __future__ import annotations

KAFKA_VERSION = "4.3.0"
