"""The entries of a file and its overrides, parsed one by one, with every problem and warning noted
beside the line it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from penstock.config import node_settings as node
from penstock.config.nearest import did_you_mean
from penstock.config.properties import Entry
from penstock.config.setting import InvalidSettingError, Setting
from penstock.config.settings import NODE_SETTINGS
from penstock.config.unbuilt import find_unbuilt
from penstock.config.values import RefusedError, UnusableError

T = TypeVar("T")


class Draft:
    """Values on their way to a `NodeConfig`. Asking for one that cannot be used raises
    UnusableError: it has been noted."""

    def __init__(self, entries: Mapping[str, Entry], file: str) -> None:
        self._entries = entries
        self._file = file
        self._problems: dict[str, int] = {}
        self.values: dict[str, Any] = {}
        self.warnings: list[str] = []
        for entry in entries.values():
            self._take(entry)
        self._adopt_broker_id()
        self._note_missing()

    def __getitem__(self, setting: Setting[T], /) -> T:
        if setting.name in self.values:
            return cast(T, self.values[setting.name])
        if self.is_set(setting) or setting.required:
            raise UnusableError(setting.name)
        return setting.default_value()

    def is_set(self, setting: Setting[Any], /) -> bool:
        return setting.name in self._entries

    @property
    def problems(self) -> tuple[str, ...]:
        """In the order of their lines (those without one first), each once, however many checks
        came upon it."""
        return tuple(sorted(self._problems, key=lambda problem: self._problems[problem]))

    def attempt(self, check: Callable[[Draft], object]) -> None:
        """Runs a check of values together. One that needs an unusable value has nothing to add."""
        try:
            check(self)
        except RefusedError as error:
            self._note(error.setting.name, error.reason)
        except UnusableError:
            return

    def _note(self, name: str, problem: str) -> None:
        entry = self._entries.get(name)
        where, line = (entry.where, entry.line) if entry else (self._file, 0)
        self._problems[f"{where}: {problem}"] = line

    def _take(self, entry: Entry) -> None:
        if unbuilt := find_unbuilt(entry.key):
            if reason := unbuilt.refusal(entry.key, entry.value):
                self._note(entry.key, reason)
            return
        setting = NODE_SETTINGS.get(entry.key)
        if setting is None:
            self.warnings.append(
                f"{entry.where}: unknown setting {entry.key}: it is "
                f"ignored.{did_you_mean(entry.key, NODE_SETTINGS)}"
            )
            return
        try:
            self.values[entry.key] = setting.parse(entry.value)
        except InvalidSettingError as error:
            self._note(entry.key, str(error))

    def _adopt_broker_id(self) -> None:
        """broker.id and node.id are one thing under two names."""
        names = (node.NODE_ID, node.BROKER_ID)
        given = [self.values[setting.name] for setting in names if setting.name in self.values]
        if len(set(given)) > 1:
            self._note(
                node.BROKER_ID.name,
                "You must set `node.id` to the same value as `broker.id`, or leave broker.id out.",
            )
        elif given and given[0] >= 0:
            self.values |= {setting.name: given[0] for setting in names}

    def _note_missing(self) -> None:
        for setting in NODE_SETTINGS.values():
            if setting.required and setting.name not in self.values and not self.is_set(setting):
                self._note(
                    setting.name,
                    (
                        f"Missing required configuration {setting.name} which has no default "
                        "value. "
                        f"{setting.doc}"
                    ),
                )
