"""Settings: name, type, default, documentation, parsing and formatting (Kafka's `ConfigDef`).

Parsing accepts what Kafka accepts (values are trimmed, booleans may have any case), and its error
messages are Kafka's.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, Generic, Protocol, TypeVar, cast

from penstock.config.validators import Validator

T = TypeVar("T")


class SettingType(IntEnum):
    """The numbers are those of DescribeConfigs (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The source of a config's value. The numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_GROUP = 8


class Importance(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Dynamic(StrEnum):
    """Whether a broker setting can change at runtime: never, per broker, or also for all brokers
    (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Required(Enum):
    """Stands for the default of a required setting."""

    REQUIRED = "required"


class InvalidSettingError(ValueError):
    """An invalid value of a setting."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(
            f"Invalid value {'null' if value is None else value} for configuration {name}: {reason}"
        )
        self.name = name
        self.reason = reason


# No slots: typing sets an attribute on the result of a subscripted call, Setting[int | None](...),
# which a frozen class with slots refuses on Python 3.11.
@dataclass(frozen=True)
class Setting(Generic[T]):
    """One setting. T is the type of its value: bool, int, float, str or tuple[str, ...], or None if
    the default is null."""

    name: str
    type: SettingType
    default: T | Required
    importance: Importance
    doc: str
    valid: Validator | None = None
    dynamic: Dynamic = Dynamic.READ_ONLY
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        """True if the value is never shown. As in Kafka, a setting of unknown type may be one."""
        return self.type in (SettingType.PASSWORD, SettingType.UNKNOWN)

    @property
    def required(self) -> bool:
        return isinstance(self.default, Required)

    def default_value(self) -> T:
        """Raises InvalidSettingError for a required setting."""
        if isinstance(self.default, Required):
            raise InvalidSettingError(self.name, None, f"it has no default: set {self.name}")
        return self.default

    def parse(self, text: str) -> T:
        """Return the value of a text. Raises InvalidSettingError if it is invalid."""
        trimmed = text.strip()
        try:
            value = _PARSERS[self.type](trimmed)
        except ValueError as error:
            raise InvalidSettingError(self.name, self._shown(trimmed), str(error)) from None
        reason = self.valid.refusal(self.name, value) if self.valid else None
        if reason:
            raise InvalidSettingError(self.name, self._shown(trimmed), reason)
        return cast(T, value)

    def format(self, value: T) -> str | None:
        """Return the value as DescribeConfigs shows it; None if it is null or sensitive."""
        if value is None or self.sensitive:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return _java_double(value)
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def _shown(self, text: str) -> str:
        return "[hidden]" if self.sensitive else text


class Values(Protocol):
    """Typed values by setting: a `NodeConfig`, or the settings that one is parsed from."""

    def __getitem__(self, setting: Setting[T], /) -> T: ...

    def is_set(self, setting: Setting[Any], /) -> bool:
        """Return True if the value was given explicitly."""


class InconsistentSettingsError(ValueError):
    """Values that are valid separately but not together. `setting` is the first to look at."""

    def __init__(self, setting: Setting[Any], reason: str) -> None:
        super().__init__(reason)
        self.setting = setting
        self.reason = reason


def require(holds: bool, setting: Setting[Any], reason: str) -> None:
    if not holds:
        raise InconsistentSettingsError(setting, reason)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence to append to an error for an unknown name; empty if no known one is close.

    Names longer than that of any setting are not compared.
    """
    close = (
        difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75) if len(name) <= 100 else []
    )
    return f" Did you mean {close[0]}?" if close else ""


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?", re.ASCII)
_COMMA = re.compile(r"\s*,\s*")


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return lowered == "true"


def _whole(type_: SettingType, bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text) if _INTEGER.fullmatch(text) else None
        if value is None or not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(f"Not a number of type {type_.name}")
        return value

    return parse


def _double(text: str) -> float:
    value = float(text.rstrip("dDfF")) if _DECIMAL.fullmatch(text) else math.nan
    # Java also accepts NaN and Infinity. No setting needs them, and NaN passes every range check.
    if not math.isfinite(value):
        raise ValueError("Not a number of type DOUBLE")
    return value


def _list(text: str) -> tuple[str, ...]:
    return tuple(_COMMA.split(text)) if text else ()


_PARSERS: Mapping[SettingType, Callable[[str], Any]] = {
    SettingType.BOOLEAN: _boolean,
    SettingType.STRING: str,
    SettingType.INT: _whole(SettingType.INT, 32),
    SettingType.SHORT: _whole(SettingType.SHORT, 16),
    SettingType.LONG: _whole(SettingType.LONG, 64),
    SettingType.DOUBLE: _double,
    SettingType.LIST: _list,
    SettingType.CLASS: str,
    SettingType.PASSWORD: str,
}


def _java_double(value: float) -> str:
    """Format as Java's Double.toString: 0.5, but 1.0E22 for 1e22."""
    decimal = Decimal(repr(value))
    exponent = decimal.adjusted()
    if value == 0 or -3 <= exponent < 7:
        plain = format(decimal, "f")
        return plain if "." in plain else plain + ".0"
    digits = "".join(map(str, decimal.as_tuple().digits)).rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exponent}"
