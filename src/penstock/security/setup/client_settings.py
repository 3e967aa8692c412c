"""The settings by which clients of each library connect to a secure cluster.

Java's names are also those of Penstock's own commands and, with the prefix `kafka.`, of Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.security.jaas import LoginModule

MECHANISM = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """Where a client connects to. In a secure cluster it has a user, a password, and the file with
    the certificate of the cluster's authority."""

    bootstrap_servers: str
    user: str | None = None
    password: str = field(default="", repr=False)
    ca_file: str = ""

    def java(self) -> dict[str, str]:
        """Return the settings with the names of Kafka's Java clients."""
        servers = {"bootstrap.servers": self.bootstrap_servers}
        if self.user is None:
            return servers
        return {
            **servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": jaas(LoginModule.SCRAM, username=self.user, password=self.password),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca_file,
            "ssl.endpoint.identification.algorithm": "https",
        }

    def librdkafka(self) -> dict[str, Any]:
        """Return the settings with the names of librdkafka: for confluent-kafka and kcat."""
        servers: dict[str, Any] = {"bootstrap.servers": self.bootstrap_servers}
        if self.user is None:
            return servers
        return {
            **servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": self.ca_file,
            "ssl.endpoint.identification.algorithm": "https",
        }

    def kafka_python(self) -> dict[str, Any]:
        """Return the keyword arguments of kafka-python's clients."""
        servers = {"bootstrap_servers": self.bootstrap_servers.split(",")}
        if self.user is None:
            return servers
        return {**servers, **self._keywords(), "ssl_cafile": self.ca_file}

    def aiokafka(self) -> dict[str, Any]:
        """Return the keyword arguments of aiokafka's clients."""
        servers = {"bootstrap_servers": self.bootstrap_servers}
        if self.user is None:
            return servers
        import ssl

        context = ssl.create_default_context(cafile=self.ca_file)
        return {**servers, **self._keywords(), "ssl_context": context}

    def _keywords(self) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }


def jaas(module: LoginModule, **options: str) -> str:
    """Return a sasl.jaas.config."""
    texts = (f'{name}="{_quoted(value)}"' for name, value in options.items())
    return f"{module} required {' '.join(texts)};"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
