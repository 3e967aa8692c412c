"""The settings of the authorizer: one class, and super users that are principals."""

from __future__ import annotations

import pytest

from penstock.config.authorizer_settings import (
    AUTHORIZER_CLASS_NAME,
    STANDARD_AUTHORIZER,
    SUPER_USERS,
    super_users,
)
from penstock.config.node import ConfigError
from penstock.start import guarded_load
from tests.config.node_examples import COMBINED, read


def test_without_a_class_there_is_no_authorizer_and_nothing_is_wrapped() -> None:
    config = read(COMBINED)
    assert config[AUTHORIZER_CLASS_NAME] == ""

    def load(_key: int) -> None:
        return None

    assert guarded_load(load, None, is_controller=False) is load  # type: ignore[arg-type,comparison-overlap]


@pytest.mark.parametrize(
    "name",
    ["kafka.security.authorizer.AclAuthorizer", "com.example.Mine", STANDARD_AUTHORIZER.lower()],
)
def test_other_classes_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="names a Java class, which Penstock cannot run"):
        read(COMBINED, authorizer_class_name=name)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        ("User:admin", ("User:admin",)),
        (" User:admin ; User:CN=a,O=b ;; ", ("User:admin", "User:CN=a,O=b")),
        ("User:a:b", ("User:a:b",)),
    ],
)
def test_super_users_are_separated_by_semicolons(text: str, found: tuple[str, ...]) -> None:
    config = read(COMBINED, authorizer_class_name=STANDARD_AUTHORIZER, super_users=text)
    assert super_users(config[SUPER_USERS]) == found


@pytest.mark.parametrize("text", ["admin", "User:", ":admin", "User:a;b"])
def test_super_users_must_be_principals(text: str) -> None:
    with pytest.raises(ConfigError, match="is no principal: expected Type:name"):
        read(COMBINED, super_users=text)
