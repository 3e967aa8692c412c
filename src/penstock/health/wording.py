"""Words for times, durations, sizes and lists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo

# Elements of a list that are named; the others are counted.
NAMED = 3

_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_SIZES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
# The first words of phrases whose plural is not made by dropping an "s".
_PLURALS = {"is": "are", "has": "have", "does": "do", "was": "were", "cannot": "cannot"}


def clock_time(at_ms: int, now_ms: int, zone: tzinfo) -> str:
    """Return a time of today as 12:03:10, and any other with its date."""
    at = datetime.fromtimestamp(at_ms / 1000, zone)
    today = datetime.fromtimestamp(now_ms / 1000, zone).date()
    return f"{at:%H:%M:%S}" if at.date() == today else f"{at:%Y-%m-%d %H:%M:%S}"


def duration(length_ms: float) -> str:
    """Return 14 s, 3 min, 2 h or 5 days, with one decimal below 10."""
    for unit_ms, name in ((_DAY_MS, "days"), (_HOUR_MS, "h"), (_MINUTE_MS, "min")):
        if length_ms >= 2 * unit_ms:
            return f"{length_ms / unit_ms:.0f} {name}"
    if length_ms >= _SECOND_MS:
        return f"{length_ms / _SECOND_MS:.0f} s"
    return f"{max(length_ms, 0):.0f} ms"


def size(count: int) -> str:
    """Return 1.2 GB, or 17 bytes."""
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def listed(names: Sequence[object], named: int = NAMED, more: int = 0) -> str:
    """Return "a", "a and b", "a, b and c", or "a, b, c and 312 more". `more` counts those that are
    not in `names`."""
    texts = [str(name) for name in names[:named]]
    more += max(len(names) - named, 0)
    if more:
        return f"{', '.join(texts)} and {more:,} more"
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def counted(number: int, noun: str) -> str:
    """Return "1 record" or "1,200 records", "2 fetches"."""
    ending = "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def printable(text: str) -> str:
    """Replace control characters: names of groups, clients and log lines come from anywhere, and a
    terminal would execute them."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def brokers(ids: Sequence[int]) -> str:
    """Return "broker 2" or "brokers 2 and 3"."""
    return f"broker{'' if len(ids) == 1 else 's'} {listed(ids)}"


def plural(phrase: str) -> str:
    """Return "are offline" for "is offline", "read" for "reads"."""
    verb, space, rest = phrase.partition(" ")
    return _PLURALS.get(verb, verb.removesuffix("s")) + space + rest
