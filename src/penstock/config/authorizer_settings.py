"""Settings of the authorizer: which one, who may do everything, and what is allowed without an
access control entry."""

from __future__ import annotations

from typing import NamedTuple

from penstock.config.setting import Importance, Setting, SettingType

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class AuthorizerClass(NamedTuple):
    """The one authorizer, or none."""

    text: str = "non-null string"

    def refusal(self, _name: str, value: str, /) -> str | None:
        if value in ("", STANDARD_AUTHORIZER):
            return None
        return (
            "it names a Java class, which Penstock cannot run. Set it to "
            f"{STANDARD_AUTHORIZER}, or remove it to let all clients do everything"
        )


class Principals(NamedTuple):
    text: str = "principals, such as User:admin, separated by semicolons"

    def refusal(self, _name: str, value: str, /) -> str | None:
        for principal in super_users(value):
            if not all(principal.partition(":")[::2]):
                return f"{principal!r} is no principal: expected Type:name, such as User:admin"
        return None


def super_users(text: str) -> tuple[str, ...]:
    """Return the principals of super.users."""
    return tuple(name.strip() for name in text.split(";") if name.strip())


AUTHORIZER_CLASS_NAME = Setting(
    "authorizer.class.name",
    SettingType.STRING,
    "",
    Importance.LOW,
    (
        f"{STANDARD_AUTHORIZER} checks access control entries, which are in the metadata log. All "
        "nodes of a cluster need the same value. If empty, all clients may do everything."
    ),
    AuthorizerClass(),
)
SUPER_USERS = Setting(
    "super.users",
    SettingType.STRING,
    "",
    Importance.LOW,
    (
        "The principals that may do everything, separated by semicolons. Controllers must be among "
        "them, and brokers should be: a controller that has not loaded the entries yet allows "
        "nothing to others."
    ),
    Principals(),
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND = Setting(
    "allow.everyone.if.no.acl.found",
    SettingType.BOOLEAN,
    False,
    Importance.LOW,
    (
        "If a resource has no access control entry at all, let every client do everything with it, "
        "instead of only super users."
    ),
)
EARLY_START_LISTENERS = Setting[tuple[str, ...] | None](
    "early.start.listeners",
    SettingType.LIST,
    None,
    Importance.HIGH,
    (
        "No effect in Penstock: the listeners of controllers accept connections before the "
        "authorizer is ready, and those of brokers after it."
    ),
)
