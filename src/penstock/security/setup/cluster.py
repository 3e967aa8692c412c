"""The secrets of a secure cluster, in its directory, and the settings of its nodes.

    ca.pem              the certificate of the authority, which clients trust
    ca.key              its private key
    secure.json         the passwords of the first users, and the token of the metrics
    <id>/node.pem       a node's private key and certificate chain

Every file but ca.pem has the mode 0600. They are made once: a restart keeps authority, users and
passwords. Only a node's certificate is renewed, when it is about to expire.

Clients and brokers use the listener SASL_SSL, with SCRAM-SHA-512. Nodes log in to controllers with
PLAIN over TLS: a controller knows the users of SCRAM only once the quorum has a leader. Controllers
accept SCRAM too, so that administrators use one login everywhere.
"""

from __future__ import annotations

import datetime
import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.config.authorizer_settings import STANDARD_AUTHORIZER
from penstock.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from penstock.security.jaas import LoginModule
from penstock.security.setup.authority import Authority, end_of
from penstock.security.setup.client_settings import MECHANISM, ClientAccess, jaas

CA_FILE = "ca.pem"
CA_KEY_FILE = "ca.key"
SECRETS_FILE = "secure.json"
NODE_FILE = "node.pem"
# The name of the listener of clients and brokers.
LISTENER = "SASL_SSL"
# The user that nodes log in as, and the first user of clients.
NODE_USER, ADMIN_USER = "node", "admin"
_RENEWED_BEFORE = datetime.timedelta(days=30)
_PASSWORD_BYTES = 24


class SecretsError(ValueError):
    """The files of a secure cluster cannot be used. The text has no secret."""


@dataclass(frozen=True, slots=True)
class ClusterSecrets:
    directory: Path
    authority: Authority = field(repr=False)
    node_password: str = field(repr=False)
    admin_password: str = field(repr=False)
    metrics_token: str = field(repr=False)

    @staticmethod
    def create(directory: Path) -> ClusterSecrets:
        """Make the secrets of a new cluster, and write them."""
        made = ClusterSecrets(
            directory,
            Authority.create(f"Penstock CA {secrets.token_hex(4)}", _now()),
            node_password=secrets.token_urlsafe(_PASSWORD_BYTES),
            admin_password=secrets.token_urlsafe(_PASSWORD_BYTES),
            metrics_token=secrets.token_urlsafe(_PASSWORD_BYTES),
        )
        write_secret(directory / CA_KEY_FILE, made.authority.key_pem)
        replace_file(directory / CA_FILE, made.authority.certificate_pem, 0o644)
        values = {
            "node_password": made.node_password,
            "admin_password": made.admin_password,
            "metrics_token": made.metrics_token,
        }
        # Last: a directory with this file is secure, and complete.
        write_secret(directory / SECRETS_FILE, json.dumps(values, indent=1).encode() + b"\n")
        return made

    @staticmethod
    def load(directory: Path) -> ClusterSecrets | None:
        """Return the secrets of a directory; None if it has none. Raises SecretsError."""
        file = directory / SECRETS_FILE
        if not file.exists():
            return None
        try:
            values = json.loads(file.read_bytes())
            return ClusterSecrets(
                directory,
                Authority.load(
                    (directory / CA_KEY_FILE).read_bytes(), (directory / CA_FILE).read_bytes()
                ),
                str(values["node_password"]),
                str(values["admin_password"]),
                str(values["metrics_token"]),
            )
        except (OSError, ValueError, TypeError, KeyError) as error:
            # The text of the error could have a part of the file.
            kind = type(error).__name__
            raise SecretsError(
                f"cannot use {file}, {CA_FILE} and {CA_KEY_FILE} ({kind}): penstock up --secure "
                "writes these files. Restore them, or use another --dir"
            ) from None

    def prepare_node(self, home: Path, name: str, hosts: Iterable[str]) -> Path:
        """Write a node's key and certificate if it has none, or if its certificate is about to
        expire. Return the file."""
        file = home / NODE_FILE
        if not file.exists() or _is_due(file):
            write_secret(file, self.authority.issue(name, hosts, _now()))
        return file

    def node_settings(self, node_file: Path) -> dict[str, str]:
        """Return the security settings of a node's server.properties."""
        login = {"username": NODE_USER, "password": self.node_password}
        of_listener = f"listener.name.{LISTENER.lower()}"
        return {
            "listener.security.protocol.map": f"{LISTENER}:SASL_SSL,CONTROLLER:SASL_SSL",
            "inter.broker.listener.name": LISTENER,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(node_file),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / CA_FILE),
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "sasl.mechanism.controller.protocol": "PLAIN",
            f"{of_listener}.{MECHANISM.lower()}.sasl.jaas.config": jaas(LoginModule.SCRAM, **login),
            "listener.name.controller.sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
            "listener.name.controller.plain.sasl.jaas.config": jaas(
                LoginModule.PLAIN, **login, **{f"user_{NODE_USER}": self.node_password}
            ),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{NODE_USER}",
            "penstock.metrics.token": self.metrics_token,
        }

    @property
    def scram_arguments(self) -> list[str]:
        """Return the first users, as arguments of `format --add-scram`."""
        users = {NODE_USER: self.node_password, ADMIN_USER: self.admin_password}
        return [f"{MECHANISM}=[name={user},password={text}]" for user, text in users.items()]

    def client_access(self, bootstrap_servers: str) -> ClientAccess:
        """Return how the first user of clients connects."""
        ca_file = str(self.directory / CA_FILE)
        return ClientAccess(bootstrap_servers, ADMIN_USER, self.admin_password, ca_file)


def first_acls() -> list[Acl]:
    """Return the entries of a new cluster: its first user may do everything. That one is no super
    user, so entries that deny apply to it too."""
    names = {ResourceType.CLUSTER: CLUSTER_NAME}
    return [
        Acl(
            resource_type,
            names.get(resource_type, WILDCARD),
            PatternType.LITERAL,
            f"User:{ADMIN_USER}",
            WILDCARD,
            AclOperation.ALL,
            PermissionType.ALLOW,
        )
        for resource_type in ResourceType
        if resource_type not in (ResourceType.UNKNOWN, ResourceType.ANY)
    ]


def write_secret(file: Path, data: bytes) -> None:
    """Replace a file that only its owner may read."""
    replace_file(file, data, 0o600)


def replace_file(file: Path, data: bytes, mode: int) -> None:
    """Replace a file as a whole. It never has a wider mode, whatever an earlier one had."""
    temporary = file.with_name(f"{file.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())
    temporary.replace(file)


def _is_due(file: Path) -> bool:
    try:
        return end_of(file.read_bytes()) - _now() < _RENEWED_BEFORE
    except ValueError:
        return True


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
