"""Looks up the SCRAM credentials of users and of delegation tokens in the metadata.

Controllers that authenticate to each other with SCRAM need a credential before they can elect a
leader, and without a leader a controller has no committed metadata. Until then the user that the
nodes log in to controllers as is looked up in bootstrap.checkpoint. So its password must not change
after `format --add-scram`, or controllers must log in with another mechanism. Other users wait for
the metadata.

A client cannot tell users that do not exist by their made-up salts: these are derived from a secret
that all nodes have, and that does not change when a node restarts. It is
`delegation.token.secret.key`, or else the key of the first user in the metadata. Without users
there is nothing to tell.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping

from penstock.config.delegation_token_settings import secret_key
from penstock.config.listeners import security_protocols
from penstock.config.node import NodeConfig
from penstock.config.sasl_settings import SASL_MECHANISM_CONTROLLER_PROTOCOL
from penstock.metadata.image import MetadataImage
from penstock.node.delegation_tokens import DelegationTokens
from penstock.node.quorum.bootstrap_file import FirstRecord
from penstock.protocol.internal.metadata_security import UserScramCredentialRecord
from penstock.security.sasl.scram import TokenLogin
from penstock.security.sasl.scram_credential import (
    ScramCredential,
    ScramCredentialKey,
    ScramMechanism,
    ScramShape,
)
from penstock.world import World

_SECRET_BYTES = 32
_PURPOSE = b"salts of unknown SCRAM users"


class ScramCredentials:
    """`image` returns the metadata of now; `first` are the records of bootstrap.checkpoint."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        image: Callable[[], MetadataImage],
        first: Iterable[FirstRecord],
    ) -> None:
        self._image = image
        self._secret_key = secret_key(config)
        self._tokens = DelegationTokens(config, world.clock, image)
        self._random = world.rng.randrange(2 ** (8 * _SECRET_BYTES)).to_bytes(_SECRET_BYTES)
        user = _controller_user(config)
        logins = (
            record
            for record in first
            if isinstance(record, UserScramCredentialRecord) and record.name == user
        )
        before = MetadataImage.empty().replay(logins, 0)[0]
        self._first = before.scram_credentials

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self._known().get((mechanism, user))

    def find_token(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        return self._tokens.find(mechanism, token_id)

    @property
    def secret(self) -> bytes:
        """The secret that makes up the salts of unknown users."""
        key = self._secret_key
        if key is None:
            first = next(iter(self._known().values()), None)
            key = self._random if first is None else first.server_key
        return hmac.digest(key, _PURPOSE, "sha256")

    def shapes(self, mechanism: ScramMechanism) -> Mapping[ScramShape, int]:
        """Return how many users have credentials of a shape."""
        return self._image().scram_shapes.get(mechanism, {})

    def _known(self) -> Mapping[ScramCredentialKey, ScramCredential]:
        image = self._image()
        return image.scram_credentials if image.features else self._first


def _controller_user(config: NodeConfig) -> str | None:
    """Return the user that nodes log in to controllers as."""
    name = config.controller_listener_names[0]
    protocol = security_protocols(config).get(name)
    if not config.is_controller or protocol is None or not protocol.is_sasl:
        return None
    # Imported on first use, so that a node without SASL starts quickly.
    from penstock.security.jaas import parsed_login

    login = parsed_login(config, name, config[SASL_MECHANISM_CONTROLLER_PROTOCOL])
    return None if login is None else login.user
