"""The security of a directory of `penstock up --secure`: its secrets, and the files of clients.

Imported only for secure clusters: the cryptography takes a while to load.
"""

from __future__ import annotations

import socket
from pathlib import Path

from penstock.cli.cluster.layout import (
    CLIENT_PROPERTIES,
    HOST,
    LIBRDKAFKA_PROPERTIES,
    LayoutError,
    replace_file,
)
from penstock.cli.cluster.up import announce
from penstock.security.setup.cluster import ClusterSecrets


def open_secrets(directory: Path, *, is_new: bool, wanted: bool) -> ClusterSecrets | None:
    """Return the secrets of a directory; None if its cluster is not secure. A new cluster gets them
    if they are `wanted`. Raises LayoutError for a cluster that was created without them."""
    secrets = ClusterSecrets.load(directory)
    if secrets is None and wanted:
        if not is_new:
            raise LayoutError(
                f"{directory} has a cluster that was created without --secure: use another --dir, "
                "or change its server.properties as docs/SASL.md describes"
            )
        secrets = ClusterSecrets.create(directory)
    return secrets


def secured_settings(secrets: ClusterSecrets | None, home: Path, node_id: int) -> dict[str, str]:
    """Return the security settings of a node, whose certificate is made, or renewed if it is about
    to expire. None of an insecure cluster."""
    if secrets is None:
        return {}
    # It has records, and the credentials of users.
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    hosts = dict.fromkeys(["localhost", HOST, "::1"])
    own = socket.gethostname()
    if own and own.isascii():  # what a certificate can have
        hosts[own] = None
    return secrets.node_settings(secrets.prepare_node(home, f"penstock-{node_id}", hosts))


def write_client_files(
    directory: Path, secrets: ClusterSecrets | None, bootstrap_servers: str
) -> list[Path]:
    """Write the properties files of clients, and return their paths; none without secrets."""
    if secrets is None:
        return []
    access = secrets.client_access(bootstrap_servers)
    java, librdkafka = directory / CLIENT_PROPERTIES, directory / LIBRDKAFKA_PROPERTIES
    java_lines = (f"{name}={_java_value(text)}\n" for name, text in access.java().items())
    replace_file(java, "".join(java_lines), is_secret=True)
    lines = (f"{name}={text}\n" for name, text in access.librdkafka().items())
    replace_file(librdkafka, "".join(lines), is_secret=True)
    return [java, librdkafka]


def _java_value(text: str) -> str:
    """Escape what Java reads differently, and no more: other programs read the file line by line.
    Java reads ISO-8859-1."""
    escaped = text.replace("\\", "\\\\")
    units = (
        character if " " <= character <= "~" else _unicode_escapes(character)
        for character in escaped
    )
    return "".join(units)


def _unicode_escapes(character: str) -> str:
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


def announce_with(directory: Path, secrets: ClusterSecrets | None, bootstrap_servers: str) -> None:
    """Write the properties files of clients, and print that the cluster is ready, and the paths."""
    files = write_client_files(directory, secrets, bootstrap_servers)
    announce(bootstrap_servers)
    for file in files:
        print(file, flush=True)
