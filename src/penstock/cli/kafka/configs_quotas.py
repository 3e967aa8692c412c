"""Quotas of users, clients and addresses, and SCRAM credentials of users, for kafka-configs.sh.

A password is not repeated in any error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite, isnan
from typing import TYPE_CHECKING

from penstock.cli.kafka.options import Option, Options, Refused
from penstock.errors import ErrorCode, KafkaError
from penstock.security.quotas.entities import (
    CLIENT_ID,
    CLIENT_KEYS,
    IP,
    IP_KEYS,
    USER,
    QuotaEntity,
    QuotaFilter,
    normalized_address,
    quota_entity,
)
from penstock.security.sasl.scram_credential import (
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramMechanism,
)

if TYPE_CHECKING:
    from penstock.client.client import Client

ENTITY_OPTIONS = {
    "user": Option("A user's principal name.", "String"),
    "user-defaults": Option("Same as --entity-type users --entity-default."),
    "client": Option("A client's id.", "String"),
    "client-defaults": Option("Same as --entity-type clients --entity-default."),
    "ip": Option("An address.", "String"),
    "ip-defaults": Option("Same as --entity-type ips --entity-default."),
}
_TYPES = {"users": USER, "clients": CLIENT_ID, "ips": IP}
_SHOWN_TYPES = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
# Kafka's default of this command.
_DEFAULT_ITERATIONS = 4_096
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]{0,9}),)?password=(.*)", re.DOTALL | re.ASCII)
_PASSWORD = re.compile(r"password=.*", re.DOTALL)
_SETTING = re.compile(r"([a-z0-9._-]+)=(\[[^\]]*\]?|[^,]*)", re.ASCII)
_DEFAULT = ""


@dataclass(frozen=True, slots=True)
class NamedEntities:
    """Entity types, and the names of the first of them. The name "" is the default; a type without
    a name stands for all names."""

    kinds: list[str]
    names: list[str]

    @property
    def quota_filter(self) -> QuotaFilter:
        types = [_TYPES[kind] for kind in self.kinds]
        names = {kind: name or None for kind, name in zip(types, self.names, strict=False)}
        return QuotaFilter(names, frozenset(types[len(self.names) :]), strict=True)

    @property
    def entity(self) -> QuotaEntity:
        types = (_TYPES[kind] for kind in self.kinds)
        return quota_entity(
            (kind, name or None) for kind, name in zip(types, self.names, strict=True)
        )


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """What --alter changes: quotas, or credentials."""

    quotas: Mapping[str, float | None] = field(default_factory=dict)
    # Iterations and password by mechanism.
    put: Mapping[ScramMechanism, tuple[int, str]] = field(default_factory=dict, repr=False)
    delete: tuple[ScramMechanism, ...] = ()


def without_secrets(words: Sequence[str]) -> list[str]:
    """Return arguments to show, without passwords, keys and logins."""
    return [_SETTING.sub(_shown, _PASSWORD.sub("password=[hidden]", word)) for word in words]


def _shown(setting: re.Match[str]) -> str:
    # Imported on first use, so that the command starts quickly.
    from penstock.config.settings import find_setting

    found = find_setting(setting[1])
    is_secret = found is not None and found.sensitive
    return f"{setting[1]}=[hidden]" if is_secret else setting[0]


def is_quota(kinds: Sequence[str]) -> bool:
    """Return True if the entity types are those of quotas."""
    return set(kinds) <= _TYPES.keys()


def quota_entities(options: Options, kinds: list[str]) -> NamedEntities:
    """Return the entities that the options name."""
    if len(set(kinds)) < len(kinds):
        repeated = ",".join(kind for number, kind in enumerate(kinds) if kind in kinds[:number])
        raise Refused(f"Duplicate entity type(s) specified: {repeated}")
    if len(kinds) > 1 and set(kinds) != {"users", "clients"}:
        raise Refused("Only 'users' and 'clients' entity types may be specified together")
    if options.has("entity-type", "entity-name", "entity-default") and options.has(*ENTITY_OPTIONS):
        raise Refused(
            "--entity-{type,name,default} should not be used in conjunction with specific entity "
            "flags"
        )
    names = list(_names(options))
    if len(names) > len(kinds):
        raise Refused("More entity names specified than entity types")
    if options.has("alter") and names and len(names) < len(kinds):
        raise Refused("An entity name must be specified for every entity type")
    if kinds == ["ips"] and names and names[0] and normalized_address(names[0]) is None:
        raise Refused(
            f"The entity name for ips must be a valid IP or resolvable host, but it is: {names[0]}"
        )
    return NamedEntities(kinds, names)


def _names(options: Options) -> Iterator[str]:
    given = iter(options.values("entity-name"))
    for option in options.order:
        if option == "entity-name":
            yield next(given)
        elif option == "entity-default":
            yield _DEFAULT
    for option in ("client", "user", "ip"):
        yield from options.values(option)
        if options.has(f"{option}-defaults"):
            yield _DEFAULT


# Altering


def quota_change(
    named: NamedEntities, put: Mapping[str, str], delete: Sequence[str]
) -> QuotaChange:
    """Return the change that --add-config and --delete-config ask for."""
    known = IP_KEYS if named.kinds == ["ips"] else CLIENT_KEYS
    scram = SCRAM_MECHANISMS if named.kinds == ["users"] else {}
    what = {"ips": "connection quota", "clients": "quota", "users": "quota and SCRAM credential"}
    kind = "clients" if len(named.kinds) > 1 else named.kinds[0]
    for verb, keys in (("added", put), ("deleted", delete)):
        unknown = [key for key in keys if key not in known and key not in scram]
        if unknown:
            raise Refused(
                f"Only {what[kind]} configs can be {verb} for '{kind}' using --bootstrap-server. "
                f"Unexpected config names: Set({', '.join(unknown)})"
            )
    credentials = {scram[key]: _credential(key, text) for key, text in put.items() if key in scram}
    removed = tuple(scram[key] for key in delete if key in scram)
    if not credentials and not removed:
        values = {key: _number(key, text) for key, text in put.items()}
        return QuotaChange(values | dict.fromkeys(delete))
    if _DEFAULT in named.names:
        raise Refused(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM "
            "Credentials using --bootstrap-server."
        )
    if len(credentials) < len(put) or len(removed) < len(delete):
        raise Refused(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using "
            "--bootstrap-server."
        )
    return QuotaChange(put=credentials, delete=removed)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Refused(f"Cannot parse quota configuration value for {key}: {text}") from None


def _credential(name: str, text: str) -> tuple[int, str]:
    match = _CREDENTIAL.fullmatch(text)
    if match is None or match[1] in ("", "-"):
        raise Refused(f"Invalid credential property {name}: give {name}=[password=...]")
    iterations = _DEFAULT_ITERATIONS if match[1] in (None, "-1") else int(match[1])
    if iterations < MIN_ITERATIONS:
        raise Refused(
            f"Iterations {iterations} is less than the minimum {MIN_ITERATIONS} required for {name}"
        )
    return iterations, match[2]


async def alter_quotas(client: Client, named: NamedEntities, change: QuotaChange) -> None:
    if change.put or change.delete:
        user = named.names[0]
        if change.delete:
            await client.admin.remove_user(user, change.delete)
        for mechanism, (iterations, password) in change.put.items():
            await client.admin.set_user(user, mechanism, password, iterations)
    else:
        found = await client.admin.describe_client_quotas(named.quota_filter)
        present = found.get(named.entity, {})
        unknown = [
            key for key, value in change.quotas.items() if value is None and key not in present
        ]
        if unknown:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid config(s): {','.join(unknown)}")
        await client.admin.alter_client_quotas({named.entity: change.quotas})
    if named.names[0]:
        print(f"Completed updating config for {named.kinds[0][:-1]} {named.names[0]}.")
    else:
        print(f"Completed updating default config for {named.kinds[0]} in the cluster.")


# Describing


async def describe_quotas(client: Client, named: NamedEntities) -> None:
    found = await client.admin.describe_client_quotas(named.quota_filter)
    for entity, values in sorted(found.items(), key=lambda item: _sorting(item[0])):
        shown = ", ".join(f"{key}={java_double(value)}" for key, value in sorted(values.items()))
        print(f"Quota configs for {_entity_text(entity)} are {shown}")
    if named.kinds == ["users"] and _DEFAULT not in named.names:
        credentials: dict[str, list[str]] = {}
        for user in await client.admin.describe_users(named.names or None):
            text = f"{user.mechanism.sasl_name}=iterations={user.iterations}"
            credentials.setdefault(user.name, []).append(text)
        for name, texts in credentials.items():
            shown = ", ".join(texts)
            print(f"SCRAM credential configs for user-principal '{name}' are {shown}")


def _sorting(entity: QuotaEntity) -> list[tuple[str, bool, str]]:
    return [(kind, name is not None, name or "") for kind, name in reversed(entity)]


def _entity_text(entity: QuotaEntity) -> str:
    parts = dict(entity)
    return ", ".join(
        f"the default {shown}" if parts[kind] is None else f"{shown} '{parts[kind]}'"
        for kind, shown in _SHOWN_TYPES.items()
        if kind in parts
    )


def java_double(value: float) -> str:
    """Return a number as Java prints it."""
    if not isfinite(value):  # in records of Apache Kafka
        return "NaN" if isnan(value) else "Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{exponent + len(digits) - 1}"
