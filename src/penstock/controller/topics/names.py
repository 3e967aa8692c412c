"""Validates topic names. The rules and error messages are Kafka's. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import METADATA_TOPIC
from penstock.limits import MAX_TOPIC_NAME_LENGTH

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """Raise KafkaError INVALID_TOPIC_EXCEPTION if the name is illegal."""
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
    """Refuse the name of the metadata log, which is not a topic."""
    if name == METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        )


def collision_key(name: str) -> str:
    """Names with the same key differ only in '.' and '_', which metric names do not distinguish."""
    return name.replace(".", "_")


def may_collide(name: str) -> bool:
    return "." in name or "_" in name


def colliding_names(names: Iterable[str]) -> dict[str, str]:
    """Map the collision key of each name with a '.' or '_' to the name."""
    return {collision_key(name): name for name in names if may_collide(name)}


def check_collision(name: str, existing: Mapping[str, str]) -> None:
    """`existing` is the result of `colliding_names` for the existing topics."""
    other = existing.get(collision_key(name)) if may_collide(name) else None
    if other is not None and other != name:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )
