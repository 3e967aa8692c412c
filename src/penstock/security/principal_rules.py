"""ssl.principal.mapping.rules: how a distinguished name becomes the name of a principal (Kafka's
SslPrincipalMapper, KIP-371). PURE.

The first rule whose pattern matches the whole name applies. The replacement has Java's syntax: $1
is the first group, and a backslash makes the next character literal. Patterns are RE2's, which
match in linear time whatever name a certificate has; Java's look-around and back references are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

DEFAULT = "DEFAULT"

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER = re.compile(_RULE)


class InvalidRule(ValueError):
    """The rules have an error."""


class NoMatchingRule(ValueError):
    """No rule applies to a name."""


class _Rule(NamedTuple):
    pattern: Any
    replacement: str
    case: str

    def __str__(self) -> str:
        return f"RULE:{self.pattern.pattern}/{self.replacement}" + (
            f"/{self.case}" if self.case else ""
        )

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        # As Java's replaceAll: a lazy pattern may match less than the whole name, several times.
        pieces, at = [], 0
        for match in self.pattern.finditer(name):
            pieces += [name[at : match.start()], _expand(self.replacement, match)]
            at = match.end()
        result = "".join((*pieces, name[at:]))
        change: Callable[[str], str] = {"L": str.lower, "U": str.upper}.get(self.case, str)
        return change(result)


class PrincipalRules:
    """Raises InvalidRule."""

    def __init__(self, text: str) -> None:
        self._rules = [rule for part in _split(text) for rule in _parse(part)]

    def __str__(self) -> str:
        return f"[{', '.join(DEFAULT if rule is None else str(rule) for rule in self._rules)}]"

    def name(self, distinguished_name: str) -> str:
        """Return the name of the principal. Raises NoMatchingRule."""
        for rule in self._rules:
            found = distinguished_name if rule is None else rule.apply(distinguished_name)
            if found is not None:
                return found
        raise NoMatchingRule(
            f"no rule of ssl.principal.mapping.rules applies to {distinguished_name}: {self}"
        )


def _split(text: str) -> list[str]:
    return [match[1] for match in _SPLITTER.finditer(text.strip())]


def _parse(text: str) -> Sequence[_Rule | None]:
    """Return the rule of a part; None stands for DEFAULT. Empty parts have none."""
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        rest = text if match is None else text[match.end() :]
        raise InvalidRule(
            f"Invalid rule: `{text}`, unmatched substring: `{rest}`. Rules are DEFAULT and "
            "RULE:pattern/replacement/[LU], separated by commas"
        )
    if match[1] is not None:
        return (None,)
    if match[2] is None:
        return ()
    re2 = import_module("re2")  # by name: it has no types
    try:
        options = re2.Options()
        options.log_errors = False
        pattern = re2.compile(match[2], options)
    except re2.error as error:
        raise InvalidRule(
            f"Invalid rule: `{text}`: {match[2]} is not a pattern that RE2 supports ({error})"
        ) from error
    _check_replacement(text, match[3], pattern.groups)
    return (_Rule(pattern, match[3], match[4]),)


def _references(replacement: str, groups: int) -> list[str | int]:
    """Return the literal pieces of a replacement, and the numbers of the groups between them.

    A number takes as many digits as there are groups for. A group that does not exist is literal
    text, as in Kafka.
    """
    pieces: list[str | int] = []
    at = 0
    while at < len(replacement):
        if replacement[at] == "\\" and at + 1 < len(replacement):
            pieces.append(replacement[at + 1])
            at += 2
            continue
        digits = re.compile(r"\$([0-9]+)", re.ASCII).match(replacement, at)
        if digits is None:
            pieces.append(replacement[at])
            at += 1
            continue
        number, end = int(digits[1][0]), digits.start(1) + 1
        while end < digits.end() and number * 10 + int(replacement[end]) <= groups:
            number, end = number * 10 + int(replacement[end]), end + 1
        if number <= groups:
            pieces.append(number)
        else:
            pieces.append(replacement[at:end])
        at = end
    return pieces


def _check_replacement(rule: str, replacement: str, groups: int) -> None:
    """Kafka fails when the rule is applied to a name."""
    if groups == 0 and re.search(r"(?<!\\)\$[1-9]", replacement):
        raise InvalidRule(
            f"Invalid rule: `{rule}`: the replacement {replacement} refers to a group, and the "
            "pattern has none. Put the part of the name that you want in parentheses"
        )


def _expand(replacement: str, match: Any) -> str:
    return "".join(
        (match.group(piece) or "") if isinstance(piece, int) else piece
        for piece in _references(replacement, match.re.groups)
    )
