"""kafka-acls.sh: add, remove and list access control entries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.cli.kafka.acls_arguments import (
    OPTIONS,
    Changes,
    Entry,
    changes_of,
    check,
    principal_of,
    resources_of,
)
from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Options, Refused
from penstock.cli.kafka.session import with_admin
from penstock.errors import KafkaError
from penstock.security.acls import (
    Acl,
    AclFilter,
    Resource,
    operation_name,
    pattern_type_name,
    permission_name,
    resource_type_name,
)

if TYPE_CHECKING:
    from penstock.client.client import Client

T = TypeVar("T")

_PURPOSE = "This tool helps to manage acls on kafka."


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    try:
        options = Options(OPTIONS, words, _PURPOSE)
        check(options)
        if options.has("add"):
            changes = changes_of(options, adds=True)
            _with_client(options, lambda client: _add(client, changes))
        elif options.has("remove"):
            changes = _confirmed(options, changes_of(options, adds=False))
            _with_client(options, lambda client: _remove(client, changes))
        else:
            _list(options)
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    except KafkaError as error:
        print(f"Error while executing ACL command: {java_text(error)}")
        return 1
    return 0


def _with_client(options: Options, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    controller = options.value("bootstrap-controller")
    return with_admin(
        controller or options.value("bootstrap-server") or "",
        options.value("command-config"),
        work,
        controllers=controller is not None,
    )


async def _add(client: Client, changes: Changes) -> None:
    for resource, entries in changes.items():
        of_resource = AclFilter(resource.type, resource.name, resource.pattern)
        existing = set(await client.admin.describe_acls(of_resource))
        added: list[Acl] = []
        for acl in dict.fromkeys(_acl(resource, entry) for entry in entries):
            if acl in existing:
                print(f"Acl (pattern={_pattern(resource)}, entry={_entry(acl)}) already exists.")
            else:
                added.append(acl)
        if added:
            lines = "\n".join(f"\t{_entry(acl)}" for acl in added)
            print(f"Adding ACLs for resource `{_pattern(resource)}`: \n {lines}\n")
            await client.admin.create_acls(added)


def _confirmed(options: Options, changes: Changes) -> Changes:
    """Return the changes that the user confirms."""
    if options.has("force"):
        return changes
    confirmed = Changes()
    for resource, entries in changes.items():
        if entries:
            lines = "\n".join(f"\t{_entry(_acl(resource, entry))}" for entry in entries)
            print(
                f"Are you sure you want to remove ACLs: \n {lines}\n from resource filter "
                f"`{_pattern(resource)}`? (y/n)"
            )
        else:
            print(
                "Are you sure you want to delete all ACLs for resource filter "
                f"`{_pattern(resource)}`? (y/n)"
            )
        if sys.stdin.readline().strip().lower() == "y":
            confirmed[resource] = entries
    return confirmed


async def _remove(client: Client, changes: Changes) -> None:
    for resource, entries in changes.items():
        of_resource = AclFilter(resource.type, resource.name, resource.pattern)
        filters = [
            of_resource._replace(
                principal=principal, host=host, operation=operation, permission=permission
            )
            for principal, host, operation, permission in entries
        ]
        await client.admin.delete_acls(filters or [of_resource])


def _list(options: Options) -> None:
    filters = [
        AclFilter(resource.type, resource.name, resource.pattern)
        for resource in resources_of(options)
    ] or [AclFilter()]
    principals = [principal_of(text) for text in options.values("principal")]

    async def work(client: Client) -> list[Acl]:
        found: dict[Acl, None] = {}
        for acl_filter in filters:
            found.update(dict.fromkeys(await client.admin.describe_acls(acl_filter)))
        return list(found)

    acls = _with_client(options, work)
    if not principals:
        _print(acls)
    for principal in principals:
        print(f"ACLs for principal `{principal}`")
        _print([acl for acl in acls if acl.principal == principal])


def _print(acls: Iterable[Acl]) -> None:
    by_resource: dict[Resource, list[Acl]] = {}
    for acl in acls:
        by_resource.setdefault(acl.resource, []).append(acl)
    for resource, entries in by_resource.items():
        lines = "\n".join(f"\t{_entry(acl)}" for acl in entries)
        print(f"Current ACLs for resource `{_pattern(resource)}`:\n{lines}\n")


# As Java prints them


def _acl(resource: Resource, entry: Entry) -> Acl:
    return Acl(resource.type, resource.name, resource.pattern, *entry)


def _pattern(resource: Resource) -> str:
    return (
        f"ResourcePattern(resourceType={resource_type_name(resource.type)}, name={resource.name}, "
        f"patternType={pattern_type_name(resource.pattern)})"
    )


def _entry(acl: Acl) -> str:
    return (
        f"(principal={acl.principal}, host={acl.host}, operation={operation_name(acl.operation)}, "
        f"permissionType={permission_name(acl.permission)})"
    )
