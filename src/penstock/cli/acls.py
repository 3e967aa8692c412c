"""List, create and delete access control entries (penstock acls)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from penstock.cli.confirmation import Yes, confirm
from penstock.cli.output import AsJson, print_json, print_table
from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, fail, with_client
from penstock.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
    operation_name,
    pattern_type_name,
    permission_name,
    resource_type_name,
)

if TYPE_CHECKING:
    from penstock.client.client import Client

E = TypeVar("E", bound=IntEnum)

_HEADING = ("PRINCIPAL", "HOST", "PERMISSION", "OPERATION", "RESOURCE", "PATTERN", "NAME")

Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="A topic; may be repeated.")
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", metavar="NAME", help="A group; may be repeated.")
]
TransactionalIds = Annotated[
    list[str] | None,
    typer.Option("--transactional-id", metavar="NAME", help="A transactional id; may be repeated."),
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
Host = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="The address of the client.")
]
Prefixed = Annotated[
    bool, typer.Option("--prefixed", help="All resources whose names start with the name.")
]
Principal = Annotated[
    str | None,
    typer.Option("--principal", metavar="TYPE:NAME", help="The principal, such as User:alice."),
]


def list_command(
    principal: Principal = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    cluster: OfCluster = False,
    matching: Annotated[
        bool,
        typer.Option(
            "--matching",
            help="All entries that apply to the names: also those of prefixes, and of `*`.",
        ),
    ] = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """List access control entries."""
    pattern = PatternType.MATCH if matching else PatternType.ANY
    resources = list(_resources(topic, group, transactional_id, cluster))
    filters = [
        AclFilter(resource_type, name, pattern, principal) for resource_type, name in resources
    ] or [AclFilter(principal=principal)]

    async def work(client: Client) -> list[Acl]:
        found: dict[Acl, None] = {}
        for acl_filter in filters:
            found.update(dict.fromkeys(await client.admin.describe_acls(acl_filter)))
        return sorted(found)

    _print(with_client("acls list", bootstrap_server, work), as_json=as_json)


def create_command(
    principal: Annotated[
        str, typer.Argument(metavar="PRINCIPAL", help="Such as User:alice; User:* is everybody.")
    ],
    operation: Annotated[
        list[str],
        typer.Option(
            "--operation",
            metavar="NAME",
            help="An operation, such as read, write, describe-configs or all; may be repeated.",
        ),
    ],
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    cluster: OfCluster = False,
    prefixed: Prefixed = False,
    host: Host = None,
    deny: Annotated[
        bool, typer.Option("--deny", help="Deny the operations instead of allowing them.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Create access control entries. Entries that deny come before those that allow."""
    try:
        acls = [
            Acl(
                resource_type,
                name,
                PatternType.LITERAL
                if resource_type == ResourceType.CLUSTER or not prefixed
                else PatternType.PREFIXED,
                principal,
                "*" if host is None else _address(host),
                parsed,
                PermissionType.DENY if deny else PermissionType.ALLOW,
            )
            for resource_type, name in _resources(topic, group, transactional_id, cluster)
            for parsed in _operations(operation, resource_type)
        ]
        if not acls:
            raise CommandFailed("name a --topic, a --group, a --transactional-id or --cluster")
        if not all(principal.partition(":")[::2]):
            raise CommandFailed(f"{principal!r} is no principal: give TYPE:NAME, as in User:alice")
    except CommandFailed as error:
        fail("acls create", str(error))

    async def work(client: Client) -> None:
        await client.admin.create_acls(acls)

    with_client("acls create", bootstrap_server, work)
    _print(acls, as_json=as_json)


def delete_command(
    principal: Principal = None,
    operation: Annotated[
        str | None,
        typer.Option("--operation", metavar="NAME", help="Only entries of this operation."),
    ] = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    cluster: OfCluster = False,
    prefixed: Prefixed = False,
    host: Host = None,
    yes: Yes = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Delete the access control entries that match all options."""
    parsed = AclOperation.ANY
    if operation is not None:
        try:
            parsed = parse_name(AclOperation, operation)
        except CommandFailed as error:
            fail("acls delete", str(error))
    pattern = PatternType.PREFIXED if prefixed else PatternType.ANY
    resources: list[tuple[ResourceType, str | None]] = [
        *_resources(topic, group, transactional_id, cluster)
    ]
    filters = [
        AclFilter(resource_type, name, pattern, principal, each, parsed)
        for resource_type, name in resources or [(ResourceType.ANY, None)]
        for each in _spellings(host)
    ]

    async def find(client: Client) -> list[Acl]:
        found: dict[Acl, None] = {}
        for acl_filter in filters:
            found.update(dict.fromkeys(await client.admin.describe_acls(acl_filter)))
        return sorted(found)

    found = with_client("acls delete", bootstrap_server, find)
    if not found:
        _print([], as_json=as_json)
        return
    if not as_json:
        _print(found, as_json=False)
    confirm("acls delete", f"Delete {len(found)} entries?", yes=yes)

    async def work(client: Client) -> list[Acl]:
        # Exactly the entries that were shown.
        return await client.admin.delete_acls([AclFilter(*acl) for acl in found])

    deleted = with_client("acls delete", bootstrap_server, work)
    if as_json:
        _print(sorted(deleted), as_json=True)
    else:
        print(f"Deleted {len(deleted)} entries.")


def parse_name(kind: type[E], text: str) -> E:
    """Return the member that a text names, in any of Kafka's spellings: DESCRIBE_CONFIGS,
    DescribeConfigs, describe-configs. Raises CommandFailed."""
    wanted = text.strip().replace("-", "").replace("_", "").lower()
    for member in kind:
        if member.name.replace("_", "").lower() == wanted and member.name not in ("UNKNOWN", "ANY"):
            return member
    names = ", ".join(
        member.name.lower().replace("_", "-")
        for member in kind
        if member.name not in ("UNKNOWN", "ANY")
    )
    raise CommandFailed(f"there is no operation {text!r}: give one of {names}")


def _operations(names: list[str], resource_type: ResourceType) -> Iterator[AclOperation]:
    for name in names:
        operation = parse_name(AclOperation, name)
        supported = SUPPORTED_OPERATIONS[resource_type]
        if operation is not AclOperation.ALL and operation not in supported:
            known = ", ".join(each.name.lower().replace("_", "-") for each in supported)
            raise CommandFailed(
                f"{resource_type.name} has no operation {name!r}: give all, or one of {known}"
            )
        yield operation


def _address(host: str) -> str:
    """Return a host as entries must have it. They are compared with the text of the client's
    address: one with another text would apply to nobody, and would deny nothing."""
    # Imported on first use, so that other commands start quickly.
    import ipaddress

    from penstock.handlers.authorization.guard import java_address

    if host == WILDCARD:
        return host
    try:
        return java_address(ipaddress.ip_address(host).packed)
    except ValueError:
        raise CommandFailed(
            f"{host!r} is no IP address: give the address that the client connects from, or "
            f"{WILDCARD}"
        ) from None


def _spellings(host: str | None) -> list[str | None]:
    """Return the hosts of entries to delete: as given, since other tools create entries too, and as
    `create` writes it."""
    if host is None:
        return [None]
    try:
        return list(dict.fromkeys((host, _address(host))))
    except CommandFailed:
        return [host]


def _resources(
    topics: list[str] | None,
    groups: list[str] | None,
    transactional_ids: list[str] | None,
    cluster: bool,
) -> Iterator[tuple[ResourceType, str]]:
    yield from ((ResourceType.TOPIC, name) for name in topics or ())
    yield from ((ResourceType.GROUP, name) for name in groups or ())
    yield from ((ResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids or ())
    if cluster:
        yield ResourceType.CLUSTER, CLUSTER_NAME


def _print(acls: list[Acl], *, as_json: bool) -> None:
    rows = [
        (
            acl.principal,
            acl.host,
            permission_name(acl.permission),
            operation_name(acl.operation),
            resource_type_name(acl.resource_type),
            pattern_type_name(acl.pattern_type),
            acl.resource_name,
        )
        for acl in acls
    ]
    if as_json:
        keys = [heading.lower() for heading in _HEADING]
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    elif rows:
        print_table(_HEADING, rows)
    else:
        print("There are no such entries.")
