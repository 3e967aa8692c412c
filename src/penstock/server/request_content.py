"""The content of a request as text for the log: its start, without secrets.

As in Kafka (RequestChannel.loggableRequest), the value of a config is hidden if it is a password or
if the config is unknown. Bytes are not shown: they are records, or another request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.config.setting import Setting
from penstock.handlers.audit_log import quoted
from penstock.handlers.loggers import BROKER_LOGGER
from penstock.metadata.image import BROKER, GROUP, TOPIC
from penstock.protocol.schema import fields_of

_CLIENT_METRICS = 16
_HIDDEN = "[hidden]"


def content_of(request: object, max_characters: int) -> str:
    """Return the start of a request. The rest, which may be megabytes, is not looked at."""
    pieces: list[str] = []
    length = 0
    # A struct with configs but without a type of resource is a topic to be created.
    for piece in _struct(request, TOPIC):
        pieces.append(piece)
        length += len(piece)
        if length >= max_characters:
            break
    return "".join(pieces)[:max_characters]


def _struct(value: Any, resource_type: int) -> Iterator[str]:
    resource_type = getattr(value, "resource_type", resource_type)
    yield f"{type(value).__qualname__}("
    for number, field in enumerate(fields_of(type(value))):
        yield f"{', ' if number else ''}{field.name}="
        found = getattr(value, field.name)
        if field.name == "value" and _is_secret(resource_type, getattr(value, "name", "")):
            yield _HIDDEN
        elif isinstance(found, tuple):
            yield "("
            for index, element in enumerate(found):
                if index:
                    yield ", "
                yield from _value(element, resource_type)
            yield ")"
        else:
            yield from _value(found, resource_type)
    yield ")"


def _value(value: Any, resource_type: int) -> Iterator[str]:
    if hasattr(type(value), "__kafka_fields__"):
        yield from _struct(value, resource_type)
    elif isinstance(value, str):
        yield quoted(value)
    elif hasattr(value, "__len__"):
        yield f"<{len(value)} bytes>"
    else:
        yield repr(value)


def _is_secret(resource_type: int, name: str) -> bool:
    # Imported on first use so that a node starts quickly.
    from penstock.controller.configs.checks import setting_of

    if resource_type in (BROKER_LOGGER, _CLIENT_METRICS):
        return False
    setting: Setting[Any] | None = None
    if resource_type in (TOPIC, BROKER, GROUP):
        setting = setting_of(resource_type, name)
    return setting is None or setting.sensitive
