"""How the value of an option is read: numbers, flags, times and JSON, each error with an example of
what would do. Pure."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from penstock.ids import TopicPartition

MAX_INT64 = 2**63 - 1
MAX_PARTITION = 2**31 - 1

_UNITS_S = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "": 1e-3,
}


class OptionError(ValueError):
    """An option that cannot be used as it is given. The message says what to do."""


class OptionTable:
    """The names that one of source and sink knows; Spark's options have no case."""

    def __init__(
        self, owner: str, names: Iterable[str], without_effect: Iterable[str] = ()
    ) -> None:
        self._owner = owner
        self._names = {name.lower(): name for name in names}
        self._without_effect = {name.lower(): name for name in without_effect}

    def read(self, options: Mapping[str, str]) -> dict[str, str]:
        """Those that are known, under their own spelling. The kafka.* ones are another table's."""
        given = {}
        for key, value in options.items():
            name = key.lower()
            if name in self._names:
                given[self._names[name]] = value
            elif not name.startswith("kafka.") and name not in self._without_effect:
                raise OptionError(
                    f"penstock's {self._owner} has no option {key}{self._nearest(name)}"
                )
        return given

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name, [*self._names, *self._without_effect], n=1)
        if near:
            return f": is {(self._names | self._without_effect)[near[0]]} meant?"
        return f". It has {', '.join(self._names.values())} and kafka.*"


def whole(given: Mapping[str, str], name: str, *, least: int, most: int = MAX_INT64) -> int | None:
    if name not in given:
        return None
    text = given[name].strip()
    if not re.fullmatch(r"-?[0-9]{1,19}", text) or not least <= int(text) <= most:
        bound = (
            f"a whole number of at least {least}"
            if most == MAX_INT64
            else f"a whole number from {least} to {most}"
        )
        raise OptionError(f"{name} is {given[name]!r}: {bound} is expected")
    return int(text)


def flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} is {given[name]!r}: true or false is expected")
    return text == "true"


def duration_s(given: Mapping[str, str], name: str, *, default: str) -> float:
    """As Spark writes times: 500ms, 30s, 15m, 1h; a number alone is milliseconds."""
    text = given.get(name, default).strip().lower()
    found = re.fullmatch(r"([0-9]{1,15})([a-z]*)", text)
    if found is None or found[2] not in _UNITS_S:
        raise OptionError(f"{name} is {given[name]!r}: a time like 500ms, 30s or 15m is expected")
    return int(found[1]) * _UNITS_S[found[2]]


def assigned(text: str) -> frozenset[TopicPartition]:
    example = '{"orders": [0, 1], "payments": [0]}'
    found = {
        _partition("assign", topic, index, example)
        for topic, indexes in _object("assign", text, example).items()
        for index in (
            indexes
            if isinstance(indexes, list)
            else _refuse("assign", f"topic {topic} has no list of partitions", example)
        )
    }
    return frozenset(found) if found else _refuse("assign", "it names no partition", example)


def per_partition(option: str, text: str, *, least: int, example: str) -> dict[TopicPartition, int]:
    """{"topic": {"partition": number}}."""
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _object(option, text, example).items():
        if not isinstance(numbers, dict):
            _refuse(option, f"topic {topic} has no partitions with a number each", example)
        for key, number in numbers.items():
            index = int(key) if re.fullmatch(r"[0-9]{1,10}", key) else key
            if (
                isinstance(number, bool)
                or not isinstance(number, int)
                or not least <= number <= MAX_INT64
            ):
                _refuse(
                    option,
                    (
                        f"{topic}-{key} has {json.dumps(number)}, where a whole number of at least "
                        f"{least} is expected"
                    ),
                    example,
                )
            found[_partition(option, topic, index, example)] = number
    return found or _refuse(option, "it names no partition", example)


def _partition(option: str, topic: str, index: object, example: str) -> TopicPartition:
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index <= MAX_PARTITION:
        _refuse(option, f"{json.dumps(index)} is no partition of {topic}", example)
    return TopicPartition(topic, index)


def _object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        _refuse(option, f"it is no JSON ({error})", example)
    if not isinstance(found, dict):
        _refuse(option, "it is no JSON object", example)
    return found


def _refuse(option: str, why: str, example: str) -> NoReturn:
    raise OptionError(f"{option} cannot be read: {why}. Expected is something like {example}")
