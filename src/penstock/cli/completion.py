"""Completes names in a shell: topics, groups, transactional ids and profiles.

`penstock --install-completion` sets a shell up. A shell waits for the names, so a cluster that does
not answer soon has none, and nothing is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.session import LOCAL
from penstock.errors import KafkaError

if TYPE_CHECKING:
    from penstock.client.client import Client

_TIMEOUT_S = 1.0
# A shell shows no more in a useful way.
_MAX_NAMES = 500


def complete_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    async def names(client: Client) -> Iterable[str]:
        return await client.admin.list_topics()

    return _complete(ctx, incomplete, names)


def complete_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    async def names(client: Client) -> Iterable[str]:
        return [group.id for group in await client.groups.list_groups()]

    return _complete(ctx, incomplete, names)


def complete_transactional_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    async def names(client: Client) -> Iterable[str]:
        listed = await client.admin.list_transactions()
        return [each.transactional_id for listings in listed.values() for each in listings]

    return _complete(ctx, incomplete, names)


def complete_profiles(incomplete: str) -> list[str]:
    from penstock.cli.profiles import ProfileError, load, profiles_path

    try:
        return _starting(load(profiles_path()).profiles, incomplete)
    except ProfileError:
        return []


def _complete(
    ctx: typer.Context,
    incomplete: str,
    names: Callable[[Client], Coroutine[Any, Any, Iterable[str]]],
) -> list[str]:
    import asyncio

    from penstock.cli.cluster.directory import local_servers
    from penstock.cli.profiles import ProfileError, bootstrap_of
    from penstock.cli.session import CommandFailed, Servers, read_client_settings, security_of
    from penstock.client.client import Client
    from penstock.world import World
    from penstock.world.real import run

    def servers() -> str:
        given: str | None = ctx.params.get("bootstrap_server")
        named = None if given == LOCAL else given
        if (config := ctx.params.get("command_config")) is not None:
            settings = read_client_settings(Path(config))
            return Servers(named or settings.get("bootstrap.servers") or LOCAL, settings)
        profile, directory = ctx.params.get("profile"), ctx.params.get("directory")
        by_profile = bootstrap_of(profile) if named is None and directory is None else None
        return by_profile or local_servers(directory, named) or named or LOCAL

    async def ask(world: World) -> Iterable[str]:
        given = servers()
        async with (
            asyncio.timeout(_TIMEOUT_S),
            Client(
                world, given, request_timeout_s=_TIMEOUT_S, security=security_of(given)
            ) as client,
        ):
            return await names(client)

    try:
        return _starting(run(ask), incomplete)
    except (KafkaError, ProfileError, CommandFailed, TimeoutError, ValueError):
        return []


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    # A name with a control character would be executed by the terminal.
    found = (name for name in names if name.startswith(incomplete) and name.isprintable())
    return sorted(found)[:_MAX_NAMES]
