"""Which names a topic may have. The rules and their words are Kafka's. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import METADATA_TOPIC
from penstock.limits import MAX_TOPIC_NAME_LENGTH

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """KafkaError INVALID_TOPIC_EXCEPTION for a name that no topic may have."""
    reason = _refusal(name)
    if reason:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def _refusal(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return (
            f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
        )
    if not _LEGAL.fullmatch(name):
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', "
            "'_' and '-'"
        )
    return None


def check_creatable(name: str) -> None:
    """The metadata log is a topic in name only."""
    if name == METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        )


def collision_key(name: str) -> str:
    """Names with the same key differ in '.' and '_' alone, which metrics cannot tell apart."""
    return name.replace(".", "_")


def may_collide(name: str) -> bool:
    return "." in name or "_" in name


def colliding_names(names: Iterable[str]) -> dict[str, str]:
    """One name for each key, of those that have a '.' or '_'."""
    return {collision_key(name): name for name in names if may_collide(name)}


def check_collision(name: str, existing: Mapping[str, str]) -> None:
    """`existing` is what `colliding_names` gives for the topics there are."""
    other = existing.get(collision_key(name)) if may_collide(name) else None
    if other is not None and other != name:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )
