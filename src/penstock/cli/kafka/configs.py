"""kafka-configs.sh: describe and alter configs of topics, brokers, their loggers and groups, and
(`configs_quotas`) quotas and SCRAM credentials."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli.kafka.configs_quotas import (
    ENTITY_OPTIONS,
    alter_quotas,
    describe_quotas,
    is_quota,
    quota_change,
    quota_entities,
    without_secrets,
)
from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.session import read_settings, with_admin
from penstock.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.client.admin.configs import ConfigEntry, ConfigResourceType
    from penstock.client.client import Client

_PURPOSE = (
    "This tool helps to manipulate and describe entity config for a topic, client, user, "
    "broker, ip, client-metrics or group"
)
_OPTIONS = {
    "bootstrap-server": Option("Bootstrap brokers.", "String: server to connect to"),
    "bootstrap-controller": Option("Bootstrap controllers.", "String: controller to connect to"),
    "command-config": Option(
        "A properties file for the client.", "String: command config property file"
    ),
    "alter": Option("Alter configs of an entity."),
    "describe": Option("Describe configs of an entity."),
    "all": Option("With --describe: all configs, including defaults."),
    "entity-type": Option(
        "topics, brokers, broker-loggers, groups, users, clients or ips.", "String"
    ),
    "entity-name": Option(
        "The name of a topic or user, the id of a broker, group or client, or an address.", "String"
    ),
    "entity-default": Option("The defaults of brokers, users, clients or addresses."),
    **ENTITY_OPTIONS,
    "topic": Option("A topic's name.", "String"),
    "broker": Option("A broker's id.", "String"),
    "broker-logger": Option("A broker's id for its loggers.", "String"),
    "group": Option("A group's id.", "String"),
    "broker-defaults": Option("Same as --entity-type brokers --entity-default."),
    "add-config": Option("Configs to set: k1=v1,k2=[v1,v2,v2],k3=v3.", "String"),
    "add-config-file": Option("A properties file with configs to set.", "String"),
    "delete-config": Option("Names of configs to delete, separated by commas.", "String"),
}
_TYPES = "topics, clients, users, brokers, ips, client-metrics, groups, broker-loggers"
_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
_BROKER_DEFAULTS = ""
# Commas and equals signs inside square brackets are not separators.
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    try:
        options = Options(_OPTIONS, words, _PURPOSE)
        controllers = options.value("bootstrap-controller")
        with_admin(
            controllers or options.value("bootstrap-server") or "",
            options.value("command-config"),
            _work(options),
            controllers=controllers is not None,
        )
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    except KafkaError as error:
        shown = " ".join(without_secrets(words))
        print(f"Error while executing config command with args '{shown}'", file=sys.stderr)
        print(f"java.util.concurrent.ExecutionException: {java_text(error)}", file=sys.stderr)
        return 1
    return 0


def _work(options: Options) -> Callable[[Client], Coroutine[Any, Any, None]]:
    """Check the options, and return what they ask for."""
    if options.has("alter") == options.has("describe"):
        options.usage("Command must include exactly one action: --describe, --alter")
    kinds = _kinds(options)
    if is_quota(kinds):
        named = quota_entities(options, kinds)
        _check_servers(options)
        _check_changes(options, named.names)
        if options.has("describe"):
            return lambda client: describe_quotas(client, named)
        put, delete = _changes(options)
        change = quota_change(named, put, delete)
        return lambda client: alter_quotas(client, named, change)
    kind, name = _entity(options, kinds)
    act = _alter if options.has("alter") else _describe
    return lambda client: act(client, options, kind, name)


def _kinds(options: Options) -> list[str]:
    """Return the entity types, in Kafka's order."""
    kinds = list(options.values("entity-type"))
    kinds += (
        ["topics"] * options.has("topic")
        + ["brokers"] * options.has("broker", "broker-defaults")
        + ["broker-loggers"] * options.has("broker-logger")
        + ["groups"] * options.has("group")
        + ["clients"] * options.has("client", "client-defaults")
        + ["users"] * options.has("user", "user-defaults")
        + ["ips"] * options.has("ip", "ip-defaults")
    )
    if not kinds:
        raise Refused("At least one entity type must be specified")
    for kind in kinds:
        if kind not in _TYPES.split(", "):
            argument = "with a --bootstrap-server or --bootstrap-controller argument"
            raise Refused(
                f"Invalid entity type {kind}, the entity type must be one of {_TYPES} {argument}"
            )
    return kinds


def _check_servers(options: Options) -> None:
    if not options.has("bootstrap-server", "bootstrap-controller"):
        raise Refused("Either --bootstrap-server or --bootstrap-controller must be specified.")
    if options.has("bootstrap-server") and options.has("bootstrap-controller"):
        raise Refused("Only one of --bootstrap-server or --bootstrap-controller can be specified")


def _entity(options: Options, kinds: list[str]) -> tuple[str, str | None]:
    """Return the entity type and name; None means all entities of the type."""
    kind, *more = kinds
    if more:
        raise Refused("Only 'users' and 'clients' entity types may be specified together")
    if kind not in ("topics", "brokers", "broker-loggers", "groups"):
        raise Refused(
            f"configs of {kind} are not supported: Penstock has configs of topics, brokers, their "
            "loggers, groups, users, clients and ips"
        )
    _check_servers(options)
    name = next(
        (
            options.value(option)
            for option in ("entity-name", "topic", "broker", "broker-logger", "group")
            if options.has(option)
        ),
        None,
    )
    if options.has("entity-default", "broker-defaults"):
        name = _BROKER_DEFAULTS
    _check(options, kind, name)
    return kind, name


def _check(options: Options, kind: str, name: str | None) -> None:
    if kind in ("brokers", "broker-loggers") and name and not name.isdecimal():
        raise Refused(
            f"The entity name for {kind} must be a valid integer broker id, but it is: {name}"
        )
    if kind == "broker-loggers" and not name:
        action = "alter" if options.has("alter") else "describe"
        raise Refused(f"An entity name must be specified with --{action} of {kind}")
    if options.has("describe") and kind != "brokers" and name == _BROKER_DEFAULTS:
        raise Refused(f"--entity-default must not be specified with --describe of {kind}")
    if options.has("alter"):
        if name is None and kind == "brokers":
            raise Refused(
                "An entity-name or default entity must be specified with --alter of users, "
                "clients, brokers or ips"
            )
        if not name and kind != "brokers":
            raise Refused(f"An entity name must be specified with --alter of {kind}")
    _check_changes(options, [name])


def _check_changes(options: Options, names: Sequence[str | None]) -> None:
    if options.has("alter"):
        if not names:
            raise Refused(
                "An entity-name or default entity must be specified with --alter of users, "
                "clients, brokers or ips"
            )
        if not options.has("add-config", "add-config-file", "delete-config"):
            raise Refused(
                "At least one of --add-config, --add-config-file, or --delete-config must be "
                "specified with --alter"
            )
        if options.has("add-config") and options.has("add-config-file"):
            raise Refused("Only one of --add-config or --add-config-file must be specified")
    elif options.has("add-config", "add-config-file", "delete-config"):
        raise Refused("Add or delete config can only be specified with --alter")


async def _alter(client: Client, options: Options, kind: str, name: str | None) -> None:
    put, delete = _changes(options)
    if kind == "broker-loggers":
        entries = await client.admin.describe_configs(_resource(kind), name or "")
        unknown = sorted({*put, *delete} - {entry.name for entry in entries})
        if unknown:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Invalid broker logger(s): {','.join(unknown)}"
            )
    await client.admin.alter_configs(_resource(kind), name or "", put=put, delete=delete)
    if name:
        print(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")


def _changes(options: Options) -> tuple[dict[str, str], list[str]]:
    """Return the configs to set and to delete."""
    put = parse_added(options.value("add-config"))
    file = options.value("add-config-file")
    if file is not None:
        put = read_settings(file)
    deleted = (options.value("delete-config") or "").split(",")
    return put, [key.strip() for key in deleted if key.strip()]


async def _describe(client: Client, options: Options, kind: str, name: str | None) -> None:
    show_all = options.has("all")
    # Controllers do not list topics and groups; they know the configs of a given one.
    is_known = show_all or options.has("bootstrap-controller")
    names = [name] if name is not None and is_known else await _names(client, kind)
    if name is not None and name not in names:
        print(f"The {kind[:-1]} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    for entity in names if name is None else [name]:
        await _describe_entity(client, kind, entity, show_all=show_all)


async def _describe_entity(client: Client, kind: str, name: str, *, show_all: bool) -> None:
    entries = await client.admin.describe_configs(_resource(kind), name)
    if name:
        print(f"{'All' if show_all else 'Dynamic'} configs for {kind[:-1]} {name} are:")
    else:
        print(f"Default configs for {kind} in the cluster are:")
    dynamic_source = {"topics": 1, "broker-loggers": 6, "groups": 8}.get(kind) or (2 if name else 3)
    for entry in sorted(entries, key=lambda entry: entry.name):
        if show_all or entry.source == dynamic_source:
            print(f"  {_text(entry)}")


def _text(entry: ConfigEntry) -> str:
    synonyms = ", ".join(
        f"{_SOURCES.get(synonym.source, 'UNKNOWN')}:{synonym.name}={_value(synonym.value)}"
        for synonym in entry.synonyms
    )
    return (
        f"{entry.name}={_value(entry.value)} sensitive={str(entry.sensitive).lower()} "
        f"synonyms={{{synonyms}}}"
    )


def _value(value: str | None) -> str:
    return "null" if value is None else value


async def _names(client: Client, kind: str) -> list[str]:
    if kind == "topics":
        return await client.admin.list_topics()
    if kind == "groups":
        with_configs = await client.admin.list_config_resources(_resource(kind))
        groups = await client.groups.list_groups()
        return sorted({*with_configs, *(group.id for group in groups)})
    brokers = (await client.admin.describe_cluster()).brokers
    return [
        *(str(broker_id) for broker_id in sorted(broker.id for broker in brokers)),
        _BROKER_DEFAULTS,
    ]


def _resource(kind: str) -> ConfigResourceType:
    from penstock.client.admin.configs import ConfigResourceType

    return {
        "topics": ConfigResourceType.TOPIC,
        "brokers": ConfigResourceType.BROKER,
        "broker-loggers": ConfigResourceType.BROKER_LOGGER,
        "groups": ConfigResourceType.GROUP,
    }[kind]


def parse_added(text: str | None) -> dict[str, str]:
    """Parse k1=v1,k2=[v1,v2]."""
    configs = {}
    for pair in re.split(f",{_OUTSIDE_BRACKETS}", text) if text else []:
        parts = re.split(rf"\s*=\s*{_OUTSIDE_BRACKETS}", pair)
        if len(parts) != 2:
            form = 'the format "key=val" or  "key=[val1,val2]" to group values which contain commas'
            raise Refused(
                "requirement failed: Invalid entity config: all configs to be added must be in "
                f"{form}."
            )
        configs[parts[0].strip()] = re.sub(r"[\[\]]", "", parts[1]).strip()
    return configs
