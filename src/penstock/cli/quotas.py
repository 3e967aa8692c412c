"""List, set and remove quotas of users, clients and addresses (penstock quotas)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.confirmation import Yes, confirm
from penstock.cli.output import AsJson, print_json, print_table
from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, fail, with_client
from penstock.security.quotas.entities import (
    CLIENT_ID,
    CLIENT_KEYS,
    IP,
    IP_KEYS,
    USER,
    QuotaEntity,
    QuotaFilter,
    quota_entity,
)

if TYPE_CHECKING:
    from penstock.client.client import Client

Quotas = dict[QuotaEntity, dict[str, float]]

_HEADING = ("USER", "CLIENT ID", "IP", "QUOTA", "VALUE")
_DEFAULT = "<default>"

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="A user.")]
DefaultUser = Annotated[
    bool, typer.Option("--default-user", help="Each user that has no quota of its own.")
]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="A client id.")]
DefaultClientId = Annotated[
    bool, typer.Option("--default-client-id", help="Each client id that has no quota of its own.")
]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An IP address.")]
DefaultIp = Annotated[
    bool, typer.Option("--default-ip", help="Each address that has no quota of its own.")
]


def list_command(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """List quotas. With options, those of entities that have these parts."""
    try:
        parts = _parts(user, default_user, client_id, default_client_id, ip, default_ip)
    except CommandFailed as error:
        fail("quotas list", str(error))

    async def work(client: Client) -> Quotas:
        return await client.admin.describe_client_quotas(QuotaFilter(parts))

    _print(with_client("quotas list", bootstrap_server, work), as_json=as_json)


def set_command(
    quota: Annotated[
        list[str],
        typer.Argument(
            metavar="QUOTA=VALUE",
            help=f"One or more of {', '.join((*CLIENT_KEYS, *IP_KEYS))}, with a value.",
        ),
    ],
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Set quotas of a user, a client id, a user with a client id, or an address."""
    try:
        entity = _entity(user, default_user, client_id, default_client_id, ip, default_ip)
        values = dict(_parse(text, entity) for text in quota)
    except CommandFailed as error:
        fail("quotas set", str(error))

    async def work(client: Client) -> Quotas:
        await client.admin.alter_client_quotas({entity: values})
        return await client.admin.describe_client_quotas(QuotaFilter(dict(entity), strict=True))

    _print(with_client("quotas set", bootstrap_server, work), as_json=as_json)


def remove_command(
    quota: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUOTA]", help="Quotas to remove; all without any."),
    ] = None,
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    yes: Yes = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Remove quotas of a user, a client id, a user with a client id, or an address."""
    try:
        entity = _entity(user, default_user, client_id, default_client_id, ip, default_ip)
        for key in quota or ():
            _check_key(key, entity)
    except CommandFailed as error:
        fail("quotas remove", str(error))

    async def find(client: Client) -> Quotas:
        return await client.admin.describe_client_quotas(QuotaFilter(dict(entity), strict=True))

    found = with_client("quotas remove", bootstrap_server, find).get(entity, {})
    removed = {key: value for key, value in found.items() if not quota or key in quota}
    if not removed:
        _print({}, as_json=as_json)
        return
    if not as_json:
        _print({entity: removed}, as_json=False)
    confirm("quotas remove", f"Remove {len(removed)} quotas?", yes=yes)

    async def work(client: Client) -> None:
        await client.admin.alter_client_quotas({entity: dict.fromkeys(removed)})

    with_client("quotas remove", bootstrap_server, work)
    if as_json:
        _print({entity: removed}, as_json=True)
    else:
        print(f"Removed {len(removed)} quotas.")


def _parts(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    ip: str | None,
    default_ip: bool,
) -> dict[str, str | None]:
    parts: dict[str, str | None] = {}
    for kind, name, is_default in (
        (USER, user, default_user),
        (CLIENT_ID, client_id, default_client_id),
        (IP, ip, default_ip),
    ):
        if name is not None and is_default:
            raise CommandFailed(f"give --{kind} or --default-{kind}, not both")
        if name is not None or is_default:
            parts[kind] = name
    return parts


def _entity(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    ip: str | None,
    default_ip: bool,
) -> QuotaEntity:
    parts = _parts(user, default_user, client_id, default_client_id, ip, default_ip)
    if not parts:
        raise CommandFailed("name a --user, a --client-id, both, or an --ip")
    return quota_entity(parts.items())


def _parse(text: str, entity: QuotaEntity) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    _check_key(key, entity)
    try:
        return key, float(value if equals else "")
    except ValueError:
        raise CommandFailed(f"{text!r} is no quota: give {key}=NUMBER") from None


def _check_key(key: str, entity: QuotaEntity) -> None:
    keys = IP_KEYS if IP in dict(entity) else CLIENT_KEYS
    if key not in keys:
        raise CommandFailed(f"there is no quota {key!r} here: give one of {', '.join(keys)}")


def _print(quotas: Quotas, *, as_json: bool) -> None:
    rows = [
        (*(_name(entity, kind) for kind in (USER, CLIENT_ID, IP)), key, f"{value:.15g}")
        for entity, values in sorted(quotas.items(), key=lambda item: str(item[0]))
        for key, value in sorted(values.items())
    ]
    if as_json:
        print_json(
            [
                {"entity": dict(entity), "quotas": values}
                for entity, values in sorted(quotas.items(), key=lambda item: str(item[0]))
            ]
        )
    elif rows:
        print_table(_HEADING, rows)
    else:
        print("There are no such quotas.")


def _name(entity: QuotaEntity, kind: str) -> str:
    parts = dict(entity)
    return "-" if kind not in parts else parts[kind] or _DEFAULT
