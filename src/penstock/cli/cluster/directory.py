"""The brokers of a directory of `penstock up`, and how a client connects to them."""

from __future__ import annotations

from pathlib import Path

from penstock.cli.cluster import layout
from penstock.cli.session import Servers, read_client_settings

DEFAULT_DIRECTORY = Path("penstock-data")
SINGLE_NODE = 1
_BOOTSTRAP = "bootstrap.servers"


class DirectoryError(ValueError):
    """The directory is not one of `penstock up`, or does not say where its brokers listen."""


def local_servers(directory: Path | None, given: str | None) -> str | None:
    """Return the brokers of a directory with, if its cluster is secure, the settings of its
    client.properties. `given` are brokers that the user names instead. Without a directory, that of
    a secure cluster in the working directory is taken, unless brokers are given. None if there is
    none. Raises DirectoryError, and CommandFailed if the file cannot be read."""
    if directory is None:
        secure = DEFAULT_DIRECTORY / layout.SECRETS_FILE
        if given is not None or not secure.exists():
            return None
        directory = DEFAULT_DIRECTORY
    file = directory / layout.CLIENT_PROPERTIES
    if not file.exists():
        return given or read_bootstrap(directory)
    settings = read_client_settings(file)
    return Servers(given or settings.get(_BOOTSTRAP) or read_bootstrap(directory), settings)


def read_bootstrap(directory: Path) -> str:
    """Return the brokers of a directory. Raises DirectoryError."""
    try:
        cluster = layout.load(directory)
    except (layout.LayoutError, OSError) as error:
        raise DirectoryError(str(error)) from error
    if cluster is not None:
        return cluster.bootstrap
    try:
        text = (directory / str(SINGLE_NODE) / layout.PROPERTIES).read_text()
    except OSError as error:
        raise DirectoryError(
            f"{directory} has no cluster: give the --dir of penstock up"
        ) from error
    for line in text.splitlines():
        key, _equals, value = line.partition("=")
        if key.strip() == "listeners":
            for listener in value.split(","):
                name, _colon, address = listener.strip().partition("://")
                if name != "CONTROLLER" and not address.endswith(":0"):
                    return address
    raise DirectoryError(
        f"{directory} has a node that listens on any free port: give --bootstrap-server"
    )
