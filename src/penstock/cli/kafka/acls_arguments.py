"""The options of kafka-acls.sh, and the resources and entries that they name."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.cli.kafka.options import Option, Options, Refused
from penstock.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    PatternType,
    PermissionType,
    Resource,
    ResourceType,
)

_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user-principal": ResourceType.USER,
}
_OPERATIONS = {
    operation.name.replace("_", "").lower(): operation
    for operation in AclOperation
    if operation > AclOperation.ANY
}
_CLUSTER = Resource(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME)

# What one entry says of a resource: principal, host, operation, permission.
Entry = tuple[str, str, AclOperation, PermissionType]
Changes = dict[Resource, list[Entry]]

OPTIONS = {
    "bootstrap-server": Option("The brokers to connect to.", "String: server to connect to"),
    "bootstrap-controller": Option(
        "The controllers to connect to.", "String: controller to connect to"
    ),
    "command-config": Option("A properties file for the client.", "String: command-config"),
    "topic": Option("A topic; * is every topic.", "String: topic"),
    "cluster": Option("The cluster."),
    "group": Option("A consumer group; * is every group.", "String: group"),
    "transactional-id": Option(
        "A transactional id; * is every transactional id.", "String: transactional-id"
    ),
    "idempotent": Option("Allow the producer to be idempotent; with --producer."),
    "delegation-token": Option("A delegation token; * is every token.", "String: delegation-token"),
    "user-principal": Option("A user as a resource.", "String: user-principal"),
    "resource-pattern-type": Option(
        "literal (the default) or prefixed; to list and remove also any and match.",
        "String: ANY|MATCH|LITERAL|PREFIXED",
    ),
    "add": Option("Add entries."),
    "remove": Option("Remove entries."),
    "list": Option("List entries."),
    "operation": Option(
        "An operation; the default is All. Names: Read, Write, Create, Delete, Alter, Describe, "
        "ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite, CreateTokens, "
        "DescribeTokens, TwoPhaseCommit, All.",
        "String",
    ),
    "allow-principal": Option(
        "A principal as type:name; User:* is everybody.", "String: allow-principal"
    ),
    "deny-principal": Option(
        "A principal to deny; denying comes before allowing.", "String: deny-principal"
    ),
    "principal": Option("List the entries of a principal.", "String: principal"),
    "allow-host": Option("A host for --allow-principal; the default is *.", "String: allow-host"),
    "deny-host": Option("A host for --deny-principal; the default is *.", "String: deny-host"),
    "producer": Option("WRITE, DESCRIBE and CREATE on the topic, for producers."),
    "consumer": Option("READ and DESCRIBE on the topic, READ on the group, for consumers."),
    "force": Option("Do not ask before entries are removed."),
}


def check(options: Options) -> None:
    if options.has("bootstrap-server") and options.has("bootstrap-controller"):
        options.usage("Only one of --bootstrap-server or --bootstrap-controller must be specified")
    if not options.has("bootstrap-server", "bootstrap-controller"):
        options.usage("One of --bootstrap-server or --bootstrap-controller must be specified")
    if sum(options.has(name) for name in ("add", "remove", "list")) != 1:
        options.usage("Command must include exactly one action: --list, --add, --remove. ")
    of_principals = ("allow-host", "allow-principal", "deny-host", "deny-principal")
    options.exclude("list", "producer", "consumer", *of_principals)
    options.exclude("producer", "operation", "deny-principal", "deny-host")
    options.exclude("consumer", "operation", "deny-principal", "deny-host")
    if options.has("principal") and not options.has("list"):
        options.usage("The --principal option is only available if --list is set")
    if options.has("producer") and not options.has("topic"):
        options.usage("With --producer you must specify a --topic")
    if options.has("idempotent") and not options.has("producer"):
        options.usage("The --idempotent option is only available if --producer is set")
    if options.has("consumer") and (
        not options.has("topic")
        or not options.has("group")
        or (not options.has("producer") and options.has("cluster", "transactional-id"))
    ):
        options.usage(
            "With --consumer you must specify a --topic and a --group and no --cluster or "
            "--transactional-id option should be specified."
        )


def _pattern_type(options: Options) -> PatternType:
    text = (options.value("resource-pattern-type") or "literal").upper()
    if text not in ("ANY", "MATCH", "LITERAL", "PREFIXED"):
        raise Refused(
            f"Cannot parse argument '{text.lower()}' of option resource-pattern-type: Unknown "
            f"resource-pattern-type: {text.lower()}"
        )
    return PatternType[text]


def resources_of(options: Options) -> list[Resource]:
    pattern = _pattern_type(options)
    found = [
        Resource(resource_type, pattern, name.strip())
        for option, resource_type in _RESOURCES.items()
        for name in options.values(option)
    ]
    if pattern is PatternType.LITERAL and options.has("cluster", "idempotent"):
        found.append(_CLUSTER)
    return found


def _entries(options: Options, operations: Iterable[AclOperation]) -> list[Entry]:
    entries: list[Entry] = []
    for verb, permission in (("allow", PermissionType.ALLOW), ("deny", PermissionType.DENY)):
        principals = [principal_of(text) for text in options.values(f"{verb}-principal")]
        hosts = [host.strip() for host in options.values(f"{verb}-host")] or ["*"]
        entries += [
            (principal, host, operation, permission)
            for principal in principals
            for operation in operations
            for host in hosts
        ]
    return entries


def principal_of(text: str) -> str:
    principal = text.strip()
    if not all(principal.partition(":")[::2]):
        raise Refused(
            f"expected a string in format principalType:principalName but got {principal}"
        )
    return principal


def _operation(text: str) -> AclOperation:
    operation = _OPERATIONS.get(text.strip().replace("_", "").lower())
    if operation is None:
        raise Refused(f"Invalid operation: {text.strip()}")
    return operation


def changes_of(options: Options, *, adds: bool) -> Changes:
    resources, changes = resources_of(options), Changes()
    if adds and _pattern_type(options) in (PatternType.ANY, PatternType.MATCH):
        options.usage(
            f"A '--resource-pattern-type' value of '{_pattern_type(options).name}' is not valid "
            "when adding acls."
        )
    if not resources:
        options.usage(
            "You must provide at least one resource: --topic <topic> or --cluster or --group "
            "<group> or --delegation-token <Delegation Token ID>"
        )
    roles: dict[ResourceType, list[AclOperation]] = {}
    if options.has("producer"):
        roles[ResourceType.TOPIC] = [AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE]
        roles[ResourceType.TRANSACTIONAL_ID] = [AclOperation.WRITE, AclOperation.DESCRIBE]
        if options.has("idempotent"):
            roles[ResourceType.CLUSTER] = [AclOperation.IDEMPOTENT_WRITE]
    if options.has("consumer"):
        of_topic = roles.setdefault(ResourceType.TOPIC, [])
        of_topic += [
            each for each in (AclOperation.READ, AclOperation.DESCRIBE) if each not in of_topic
        ]
        roles[ResourceType.GROUP] = [AclOperation.READ]
    if not roles:
        given = [_operation(text) for text in options.values("operation")] or [AclOperation.ALL]
        roles = dict.fromkeys(ResourceType, given)
    for resource in resources:
        resource_type = ResourceType(resource.type)
        if resource_type in roles:
            entries = _entries(options, roles[resource_type])
            _check_supported(options, resource_type, entries)
            changes[resource] = entries
    if adds and not all(changes.values()):
        options.usage(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    return changes


def _check_supported(
    options: Options, resource_type: ResourceType, entries: Iterable[Entry]
) -> None:
    supported = (*SUPPORTED_OPERATIONS[resource_type], AclOperation.ALL)
    if any(operation not in supported for _principal, _host, operation, _permission in entries):
        names = ", ".join(operation.name for operation in supported)
        options.usage(f"ResourceType {resource_type.name} only supports operations [{names}]")
