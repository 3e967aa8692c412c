"""Looks up delegation tokens in the metadata: the SCRAM logins of their bearers."""

from __future__ import annotations

from collections.abc import Callable

from penstock.config.delegation_token_settings import secret_key
from penstock.config.node import NodeConfig
from penstock.limits import CACHED_TOKEN_CREDENTIALS
from penstock.metadata.image import MetadataImage
from penstock.security.delegation_tokens import token_credential
from penstock.security.sasl.scram import TokenLogin
from penstock.security.sasl.scram_credential import ScramCredential, ScramMechanism
from penstock.world import Clock


class DelegationTokens:
    """`image` returns the metadata of now."""

    def __init__(
        self, config: NodeConfig, clock: Clock, image: Callable[[], MetadataImage]
    ) -> None:
        self._secret_key = secret_key(config)
        self._clock = clock
        self._image = image
        # By mechanism and token id, the one that was added first at the front. Credentials depend
        # on the secret key and the id alone, so that they never change.
        self._credentials: dict[tuple[ScramMechanism, str], ScramCredential] = {}

    def find(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        """Return the login of a token; None if it is unknown or expired. Takes some milliseconds
        for the first login of a token."""
        token = self._image().delegation_tokens.get(token_id)
        if self._secret_key is None or token is None or token.is_expired(self._clock.now_ms()):
            return None
        key = mechanism, token_id
        credential = self._credentials.get(key)
        if credential is None:
            credential = token_credential(mechanism, self._secret_key, token_id)
            if len(self._credentials) >= CACHED_TOKEN_CREDENTIALS:
                del self._credentials[next(iter(self._credentials))]
            self._credentials[key] = credential
        return TokenLogin(token.owner.name, min(token.expires_ms, token.max_ms), credential)
