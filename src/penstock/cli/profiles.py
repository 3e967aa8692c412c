"""Profiles of clusters: names for bootstrap servers, in a file of the user (penstock profile).

A command without --bootstrap-server connects to the profile that --profile names, or else
PENSTOCK_PROFILE, or else `penstock profile use`. The file is profiles.json in
$XDG_CONFIG_HOME/penstock, and only its owner may read it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.completion import complete_profiles
from penstock.cli.output import AsJson, print_json, print_table
from penstock.cli.session import CommandFailed, Servers, fail, read_client_settings
from penstock.limits import MAX_PROFILE_NAME, MAX_PROFILES_BYTES

ENVIRONMENT = "PENSTOCK_PROFILE"
_BOOTSTRAP = "bootstrap.servers"
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_PROFILE_NAME - 1}}}")

NewName = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The profile's name.", autocompletion=complete_profiles),
]


class ProfileError(ValueError):
    """The file or the name of a profile cannot be used."""


@dataclass(frozen=True, slots=True)
class Profile:
    """`config` is the client's properties file that the servers were read from, if any."""

    bootstrap_server: str
    config: str | None = None


@dataclass(frozen=True, slots=True)
class Profiles:
    """`in_use` is the name that commands take without --profile and PENSTOCK_PROFILE."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    in_use: str | None = None

    def find(self, name: str) -> Profile:
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise ProfileError(f"there is no profile {name!r}; there are: {known}")
        return self.profiles[name]


def bootstrap_of(name: str | None) -> str | None:
    """Return the bootstrap servers of a profile or, without a name, of the one that the environment
    or `penstock profile use` chooses. They have the settings of its properties file, if it has one.
    None if no profile is chosen."""
    chosen = name or os.environ.get(ENVIRONMENT)
    path = profiles_path()
    if not chosen and not path.exists():
        return None
    profiles = load(path)
    chosen = chosen or profiles.in_use
    if chosen is None:
        return None
    profile = profiles.find(chosen)
    if profile.config is None:
        return profile.bootstrap_server
    return Servers(profile.bootstrap_server, _read_settings(Path(profile.config)))


def profiles_path() -> Path:
    # The XDG specification asks to ignore a relative path.
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    home = Path(configured) if os.path.isabs(configured) else Path.home() / ".config"
    return home / "penstock" / "profiles.json"


def load(path: Path) -> Profiles:
    """Read the file; a missing one has no profiles. Raises ProfileError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PROFILES_BYTES + 1)
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > MAX_PROFILES_BYTES:
        raise ProfileError(f"{path} is larger than {MAX_PROFILES_BYTES:,} bytes")
    try:
        return _decode(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ProfileError(
            f"{path} is not a file of profiles ({error}): correct it, or delete it and add the "
            "profiles again"
        ) from error


def save(path: Path, profiles: Profiles) -> None:
    """Replace the file as a whole, readable by its owner only."""
    text = json.dumps(
        {
            "use": profiles.in_use,
            "profiles": {name: asdict(each) for name, each in sorted(profiles.profiles.items())},
        },
        indent=2,
    )
    if len(text) > MAX_PROFILES_BYTES:
        raise ProfileError("there are too many profiles: remove some")
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise ProfileError(f"cannot write {path}: {error.strerror or error}") from error


def _decode(value: Any) -> Profiles:
    profiles = {}
    for name, each in value["profiles"].items():
        server, config = each["bootstrap_server"], each.get("config")
        if not isinstance(server, str) or not isinstance(config, str | None):
            raise TypeError(f"profile {name} has no text as bootstrap_server or config")
        profiles[name] = Profile(server, config)
    in_use = value.get("use")
    return Profiles(profiles, in_use if in_use in profiles else None)


# Commands


def add_command(
    name: NewName,
    servers: Annotated[
        str,
        typer.Option(
            "--bootstrap-server",
            metavar="HOST:PORT",
            help="Bootstrap brokers as host:port, separated by commas.",
        ),
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A client's properties file whose bootstrap.servers to take."
        ),
    ] = None,
) -> None:
    """Add or replace a profile."""
    try:
        if not _NAME.fullmatch(name):
            raise ProfileError(
                f"{name!r} is not a name: give up to {MAX_PROFILE_NAME} letters, digits and . _ -"
            )
        if config is not None:
            servers = servers or _read_servers(config)
        _check_servers(servers)
        profile = Profile(servers, None if config is None else str(config.absolute()))
        path = profiles_path()
        known = load(path)
        save(path, replace(known, profiles={**known.profiles, name: profile}))
    except ProfileError as error:
        fail("profile add", str(error))
    print(f"Added profile {name} of {servers}. `penstock profile use {name}` makes it the default.")


def use_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="The profile. Default: none.",
            autocompletion=complete_profiles,
        ),
    ] = None,
) -> None:
    """Use a profile in commands without --bootstrap-server and --profile; without NAME, none."""
    try:
        path = profiles_path()
        profiles = load(path)
        if name is not None:
            profiles.find(name)
        save(path, replace(profiles, in_use=name))
    except ProfileError as error:
        fail("profile use", str(error))
    print("Using no profile." if name is None else f"Using profile {name}.")


def list_command(as_json: AsJson = False) -> None:
    """List the profiles, and which one is in use."""
    try:
        profiles = load(profiles_path())
    except ProfileError as error:
        fail("profile list", str(error))
    in_use = os.environ.get(ENVIRONMENT) or profiles.in_use
    rows = [
        {"name": name, **asdict(profile), "in_use": name == in_use}
        for name, profile in sorted(profiles.profiles.items())
    ]
    if as_json:
        print_json(rows)
        return
    print_table(
        ["NAME", "BOOTSTRAP SERVERS", "CONFIG", "IN USE"],
        [
            [
                row["name"],
                row["bootstrap_server"],
                row["config"] or "-",
                "yes" if row["in_use"] else "-",
            ]
            for row in rows
        ],
    )


def remove_command(name: Name) -> None:
    """Remove a profile. The cluster is not touched."""
    try:
        path = profiles_path()
        profiles = load(path)
        profiles.find(name)
        left = {other: each for other, each in profiles.profiles.items() if other != name}
        save(path, Profiles(left, profiles.in_use if profiles.in_use in left else None))
    except ProfileError as error:
        fail("profile remove", str(error))
    print(f"Removed profile {name}.")


def _read_servers(config: Path) -> str:
    """Return bootstrap.servers of a client's properties file."""
    return _read_settings(config).get(_BOOTSTRAP, "")


def _read_settings(config: Path) -> dict[str, str]:
    try:
        return read_client_settings(config)
    except CommandFailed as error:
        raise ProfileError(str(error)) from error


def _check_servers(servers: str) -> None:
    from penstock.client.bootstrap import parse_bootstrap

    if not servers:
        raise ProfileError(f"give --bootstrap-server, or --config FILE with {_BOOTSTRAP}")
    try:
        parse_bootstrap(servers)
    except ValueError as error:
        raise ProfileError(str(error)) from error
