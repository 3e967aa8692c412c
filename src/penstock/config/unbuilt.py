"""Settings of Kafka that ask for something Penstock does not have. They are refused, not ignored:
what was asked for would not happen.

A setting leaves this file when what it asks for is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """Names, as a pattern, and the values of them that ask for nothing (in lower case)."""

    pattern: str
    reason: str
    idle: tuple[str, ...] = ("",)

    def refusal(self, name: str, value: str) -> str | None:
        """Why the setting is refused, or None when its value asks for nothing."""
        return (
            None if value.strip().lower() in self.idle else f"{name} cannot be used: {self.reason}."
        )


_PLAIN = "so far every connection is plain text, and nobody is asked who they are. Remove it"
_SEGMENTS_GROW = (
    "segments grow as they are written, which is what Linux file systems do best. Remove it"
)
_CLASS = "it names a Java class, and Penstock runs no Java. Remove it"

_UNBUILT = (
    Unbuilt(
        "zookeeper.*",
        "Penstock has no ZooKeeper, as Kafka has none since 4.0: its metadata is kept by a quorum "
        "of controllers. "
        "Use process.roles, node.id, controller.listener.names and controller.quorum.voters or "
        "controller.quorum.bootstrap.servers instead",
        idle=(),
    ),
    Unbuilt("ssl.*", f"Penstock has no TLS yet: {_PLAIN}", idle=()),
    Unbuilt("sasl.*", f"Penstock has no SASL yet: {_PLAIN}", idle=()),
    Unbuilt(
        "listener.name.*", f"settings for one listener alone are not there yet: {_PLAIN}", idle=()
    ),
    Unbuilt(
        "security.inter.broker.protocol",
        f"brokers speak PLAINTEXT alone to each other: {_PLAIN}",
        idle=("", "plaintext"),
    ),
    Unbuilt("security.providers", f"Penstock has no TLS yet: {_PLAIN}"),
    Unbuilt(
        "authorizer.class.name",
        "Penstock has no authorizer yet: everyone may do everything. Remove it",
    ),
    Unbuilt("super.users", "Penstock has no authorizer yet: everyone may do everything. Remove it"),
    Unbuilt("delegation.token.secret.key", f"Penstock has no delegation tokens yet: {_PLAIN}"),
    Unbuilt("principal.builder.class", _CLASS),
    Unbuilt("client.quota.callback.class", _CLASS),
    Unbuilt("create.topic.policy.class.name", _CLASS),
    Unbuilt("alter.config.policy.class.name", _CLASS),
    Unbuilt(
        "config.providers",
        "Penstock reads values as they are written, and from nowhere else. Remove it",
    ),
    Unbuilt(
        "remote.log.storage.system.enable",
        "Penstock has no tiered storage yet. Remove it, or set it to false",
        idle=("", "false"),
    ),
    Unbuilt(
        "remote.storage.enable",
        "Penstock has no tiered storage yet. Remove it, or set it to false",
        idle=("", "false"),
    ),
    Unbuilt("log.preallocate", f"{_SEGMENTS_GROW}, or set it to false", idle=("", "false")),
    Unbuilt("preallocate", f"{_SEGMENTS_GROW}, or set it to false", idle=("", "false")),
    Unbuilt(
        "controller.quorum.auto.join.enable",
        "Penstock's quorum is fixed so far. Remove it, or set it to false",
        idle=("", "false"),
    ),
    Unbuilt("cordoned.log.dirs", "Penstock cannot cordon a log directory yet. Remove it"),
    Unbuilt(
        "control.plane.listener.name",
        "it is not supported in KRaft mode. Use controller.listener.names",
    ),
)


def find_unbuilt(name: str) -> Unbuilt | None:
    return next((unbuilt for unbuilt in _UNBUILT if fnmatchcase(name, unbuilt.pattern)), None)
