"""A tool's client session, configured by its --command-config file and properties."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.cli.kafka.options import Options, Refused
from penstock.config.properties import PropertiesError, decode_properties

if TYPE_CHECKING:
    from penstock.client.client import Client

T = TypeVar("T")

_TIMEOUT_MS = "request.timeout.ms"
_DEFAULT_TIMEOUT_MS = "30000"


def with_admin(
    bootstrap: str,
    config_file: str | None,
    work: Callable[[Client], Coroutine[Any, Any, T]],
    *,
    controllers: bool = False,
) -> T:
    settings = read_settings(config_file) if config_file is not None else {}
    return with_settings(bootstrap, settings, work, controllers=controllers)


def with_settings(
    bootstrap: str,
    settings: Mapping[str, str],
    work: Callable[[Client], Coroutine[Any, Any, T]],
    *,
    controllers: bool = False,
) -> T:
    """Run `work` with a client, of brokers or of `controllers` (--bootstrap-controller). Raises
    Refused for unsupported or invalid settings."""
    from penstock.client.client import Client
    from penstock.world import World
    from penstock.world.real import run

    timeout_ms = settings.get(_TIMEOUT_MS, _DEFAULT_TIMEOUT_MS)
    if not timeout_ms.isdecimal():
        raise Refused(
            f"Invalid value {timeout_ms} for configuration {_TIMEOUT_MS}: Not a number of type INT"
        )

    async def main(world: World) -> T:
        try:
            client = Client(
                world,
                bootstrap,
                client_id=settings.get("client.id", "adminclient-1"),
                request_timeout_s=int(timeout_ms) / 1000,
                controllers=controllers,
                security=settings,
            )
        except ValueError as error:
            raise Refused(str(error)) from error
        async with client:
            return await work(client)

    return run(main)


def exclude_both(options: Options, deprecated: str, option: str) -> None:
    """Refuse a deprecated option beside the one that replaces it, as Kafka's tools do."""
    if options.has(deprecated) and options.has(option):
        options.usage(f"Options --{deprecated} and --{option} cannot be specified together.")


def given_settings(options: Options, file: str | None, *properties: str) -> dict[str, str]:
    """Return the settings of a properties file, overridden by those of the options."""
    settings: dict[str, str] = {}
    path = None if file is None else options.value(file)
    if path is not None:
        settings |= read_settings(path)
    for option in properties:
        for text in options.values(option):
            name, equals, value = text.partition("=")
            if not equals:
                raise Refused(f"Invalid command line properties: {text}: give name=value")
            settings[name] = value
    return settings


def read_settings(file: str) -> dict[str, str]:
    try:
        return {
            name: entry.value
            for name, entry in decode_properties(Path(file).read_bytes(), file).entries.items()
        }
    except OSError as error:
        raise Refused(f"{file}: {error.strerror or error}") from error
    except PropertiesError as error:
        raise Refused(str(error)) from error
