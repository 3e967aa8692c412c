"""Parses the entries of server.properties one by one, and collects problems and warnings with their
lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from penstock.config import node_settings as node
from penstock.config.properties import Entry
from penstock.config.setting import (
    InconsistentSettingsError,
    InvalidSettingError,
    Setting,
    did_you_mean,
)
from penstock.config.settings import NODE_SETTINGS, find_setting, find_unsupported

T = TypeVar("T")


class UnusableSettingError(Exception):
    """The value of a setting is invalid or missing. The problem has been recorded already."""


class ParsedSettings:
    """The values of a file, for the checks of `checks`. Reading an invalid or missing value raises
    UnusableSettingError."""

    def __init__(self, entries: Mapping[str, Entry], file: str) -> None:
        self._entries = entries
        self._file = file
        self._problems: dict[str, int] = {}
        self.values: dict[str, Any] = {}
        self.warnings: list[str] = []
        for entry in entries.values():
            self._parse(entry)
        self._adopt_broker_id()
        self._check_required()

    def __getitem__(self, setting: Setting[T], /) -> T:
        if setting.name in self.values:
            return cast(T, self.values[setting.name])
        if self.is_set(setting) or setting.required:
            raise UnusableSettingError(setting.name)
        return setting.default_value()

    def is_set(self, setting: Setting[Any], /) -> bool:
        return setting.name in self._entries

    @property
    def problems(self) -> tuple[str, ...]:
        """Each problem once, ordered by line; those without a line come first."""
        return tuple(sorted(self._problems, key=lambda problem: self._problems[problem]))

    def run_check(self, check: Callable[[ParsedSettings], object]) -> None:
        """Run a check of several values, and record its problem. A check that reads an unusable
        value is skipped: that problem is recorded already."""
        try:
            check(self)
        except InconsistentSettingsError as error:
            self._add_problem(error.setting.name, error.reason)
        except UnusableSettingError:
            return

    def _add_problem(self, name: str, problem: str) -> None:
        entry = self._entries.get(name)
        where, line = (entry.where, entry.line) if entry else (self._file, 0)
        self._problems[f"{where}: {problem}"] = line

    def _parse(self, entry: Entry) -> None:
        setting = find_setting(entry.key)
        if setting is None and (unsupported := find_unsupported(entry.key)):
            if reason := unsupported.refusal(entry.key, entry.value):
                self._add_problem(entry.key, reason)
            return
        if setting is None:
            self.warnings.append(
                f"{entry.where}: unknown setting {entry.key} is ignored."
                f"{did_you_mean(entry.key, NODE_SETTINGS)}"
            )
            return
        try:
            self.values[entry.key] = setting.parse(entry.value)
        except InvalidSettingError as error:
            self._add_problem(entry.key, str(error))

    def _adopt_broker_id(self) -> None:
        """broker.id is the former name of node.id."""
        names = (node.NODE_ID, node.BROKER_ID)
        given = [self.values[setting.name] for setting in names if setting.name in self.values]
        if len(set(given)) > 1:
            self._add_problem(
                node.BROKER_ID.name,
                "You must set `node.id` to the same value as `broker.id`, or remove broker.id.",
            )
        elif given and given[0] >= 0:
            self.values |= {setting.name: given[0] for setting in names}

    def _check_required(self) -> None:
        for setting in NODE_SETTINGS.values():
            if setting.required and setting.name not in self.values and not self.is_set(setting):
                self._add_problem(
                    setting.name,
                    f"Missing required configuration {setting.name} which has no default value. "
                    f"{setting.doc}",
                )
