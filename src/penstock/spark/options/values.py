"""Parsers for integers, booleans, durations and JSON in option values. Pure.

Every error names the option, the value that was given, and what is expected.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from penstock.ids import TopicPartition

MAX_INT64 = 2**63 - 1
MAX_PARTITION = 2**31 - 1

_SECONDS_PER_UNIT = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "": 1e-3,
}


_MS_PER_UNIT = {
    1: "ms milli millis millisecond milliseconds",
    1000: "s sec secs second seconds",
    60_000: "m min mins minute minutes",
    3_600_000: "h hr hrs hour hours",
    86_400_000: "d day days",
    604_800_000: "w week weeks",
}
_UNIT_MS = {name: factor for factor, names in _MS_PER_UNIT.items() for name in names.split()}
_BYTES_PER_UNIT = {
    "": 1,
    "b": 1,
    **{
        unit + suffix: 1024 ** (power + 1)
        for power, unit in enumerate("kmgt")
        for suffix in ("", "b")
    },
}


class OptionError(ValueError):
    """An option is unknown, missing or invalid. The message says what to do."""


class OptionNames:
    """The option names that the source or the sink accepts. Case is ignored, as everywhere in
    Spark."""

    def __init__(self, owner: str, names: Iterable[str], ignored: Iterable[str] = ()) -> None:
        self._owner = owner
        self._names = {name.lower(): name for name in names}
        self._ignored = {name.lower(): name for name in ignored}

    @property
    def names(self) -> list[str]:
        return list(self._names.values())

    @property
    def ignored(self) -> list[str]:
        return list(self._ignored.values())

    def select(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the known options under their documented spelling, without kafka.* options.

        OptionError for an unknown name.
        """
        known = {}
        for key, value in options.items():
            name = key.lower()
            if name in self._names:
                known[self._names[name]] = value
            elif not name.startswith("kafka.") and name not in self._ignored:
                raise OptionError(
                    f"the penstock {self._owner} has no option {key}{self._suggestion(name)}"
                )
        return known

    def _suggestion(self, name: str) -> str:
        similar = difflib.get_close_matches(name, [*self._names, *self._ignored], n=1)
        if similar:
            return f": did you mean {(self._names | self._ignored)[similar[0]]}?"
        return f". Its options are {', '.join(self._names.values())} and kafka.*"


def int_option(
    options: Mapping[str, str], name: str, *, minimum: int, maximum: int = MAX_INT64
) -> int | None:
    """Return the option as an integer, or None if it is not set."""
    if name not in options:
        return None
    text = options[name].strip()
    if not re.fullmatch(r"-?[0-9]{1,19}", text) or not minimum <= int(text) <= maximum:
        bounds = (
            f"of at least {minimum}" if maximum == MAX_INT64 else f"from {minimum} to {maximum}"
        )
        raise OptionError(f"{name} is {options[name]!r}, but must be an integer {bounds}")
    return int(text)


def bool_option(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} is {options[name]!r}, but must be true or false")
    return text == "true"


def duration_option(options: Mapping[str, str], name: str, *, default: str) -> float:
    """Return a duration in seconds, from Spark's notation: 500ms, 30s, 15m, 1h. A number without
    a unit is milliseconds."""
    text = options.get(name, default).strip().lower()
    match = re.fullmatch(r"([0-9]{1,15})([a-z]*)", text)
    if match is None or match[2] not in _SECONDS_PER_UNIT:
        raise OptionError(
            f"{name} is {options[name]!r}, but must be a duration such as 500ms, 30s or 15m"
        )
    return int(match[1]) * _SECONDS_PER_UNIT[match[2]]


def bytes_option(options: Mapping[str, str], name: str) -> int | None:
    """Return a number of bytes, or None if it is not set, from Spark's notation: 1048576, 512k,
    64m, 1g."""
    if name not in options:
        return None
    match = re.fullmatch(r"([0-9]{1,18})\s*([a-z]*)", options[name].strip().lower())
    number = 0
    if match is not None and match[2] in _BYTES_PER_UNIT:
        number = int(match[1]) * _BYTES_PER_UNIT[match[2]]
    if not 0 < number <= MAX_INT64:
        raise OptionError(
            f"{name} is {options[name]!r}, but must be a number of bytes such as 1048576, 64m or 1g"
        )
    return number


def milliseconds_ago(text: str) -> int | None:
    """Return the milliseconds of a duration into the past, such as "-10 minutes", "-90s" or
    "-1 hour 30 minutes". None if the text is something else."""
    body = text.strip().lower()
    if not re.fullmatch(r"-(\s*[0-9]{1,12}\s*[a-z]+)+", body):
        return None
    parts = re.findall(r"([0-9]+)\s*([a-z]+)", body)
    if any(unit not in _UNIT_MS for _number, unit in parts):
        return None
    return sum(int(number) * _UNIT_MS[unit] for number, unit in parts)


def partition_set(option: str, text: str) -> frozenset[TopicPartition]:
    """Parse {"topic": [partition, …]}."""
    example = '{"orders": [0, 1], "payments": [0]}'
    partitions = {
        _partition(option, topic, index, example)
        for topic, indexes in _json_object(option, text, example).items()
        for index in (
            indexes
            if isinstance(indexes, list)
            else _invalid(option, f"topic {topic} has no list of partitions", example)
        )
    }
    return frozenset(partitions) if partitions else _invalid(option, "it is empty", example)


def number_per_partition(
    option: str, text: str, *, minimum: int, example: str
) -> dict[TopicPartition, int]:
    """Parse {"topic": {"partition": number}}."""
    parsed: dict[TopicPartition, int] = {}
    for topic, numbers in _json_object(option, text, example).items():
        if not isinstance(numbers, dict):
            _invalid(option, f"topic {topic} does not map partitions to numbers", example)
        for key, number in numbers.items():
            index = int(key) if re.fullmatch(r"[0-9]{1,10}", key) else key
            if (
                isinstance(number, bool)
                or not isinstance(number, int)
                or not minimum <= number <= MAX_INT64
            ):
                reason = (
                    f"{topic}-{key} is {json.dumps(number)}, but must be an integer of at least "
                    f"{minimum}"
                )
                _invalid(option, reason, example)
            parsed[_partition(option, topic, index, example)] = number
    return parsed or _invalid(option, "it is empty", example)


def _partition(option: str, topic: str, index: object, example: str) -> TopicPartition:
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index <= MAX_PARTITION:
        _invalid(option, f"{json.dumps(index)} is not a partition number (topic {topic})", example)
    return TopicPartition(topic, index)


def _json_object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        _invalid(option, f"it is not valid JSON ({error})", example)
    if not isinstance(value, dict):
        _invalid(option, "it is not a JSON object", example)
    return value


def _invalid(option: str, reason: str, example: str) -> NoReturn:
    raise OptionError(f"{option} is invalid: {reason}. Use the form {example}")
