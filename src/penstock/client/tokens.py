"""Bearer tokens that a client logs in with by OAUTHBEARER: from a file, or from an issuer by the
grant of client credentials (RFC 6749).

`sasl.oauthbearer.token.endpoint.url` must be in a list of allowed URLs. Otherwise the author
of a client's settings, such as those of a Spark query, could read any file of this machine and send
it to a server, or let this machine send requests (CVE-2025-27817). The list of a node is its
setting penstock.sasl.oauthbearer.allowed.urls, that of other clients is in the environment.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from penstock.client.errors import SaslRefused
from penstock.config import oauthbearer_settings as oauth
from penstock.limits import MAX_TOKEN_BYTES, TOKEN_TIMEOUT_S
from penstock.world import World

if TYPE_CHECKING:
    import ssl

ALLOWED_URLS_VARIABLE = "PENSTOCK_SASL_OAUTHBEARER_ALLOWED_URLS"
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*", re.ASCII)
# The part of a token's lifetime after which another one is asked for, as Kafka's clients choose.
_LIFETIME_SHARE = 0.8


class InvalidTokenSource(ValueError):
    """Settings by which no token can be had. The text has no secret."""


@dataclass(slots=True)
class TokenSource:
    """`context` returns the TLS of an issuer; None for the certificates of the operating system."""

    url: str
    client_id: str | None = None
    secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    context: Callable[[], ssl.SSLContext | None] = field(default=lambda: None, repr=False)
    _token: str | None = field(default=None, init=False, repr=False)
    _until: float = field(default=0.0, init=False, repr=False)
    # The request that all logins wait for which need a token. Each takes a thread, and an issuer
    # that does not answer must not take them all: others read the disk with them.
    _asking: asyncio.Future[None] | None = field(default=None, init=False, repr=False)

    @staticmethod
    def of(
        settings: Mapping[str, str | None],
        options: Mapping[str, str],
        allowed: tuple[str, ...],
        allowed_by: str,
        context: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> TokenSource:
        """Return the source of settings by their names, and of the options of a login. Raises
        InvalidTokenSource."""
        name, url = oauth.TOKEN_ENDPOINT_URL.name, settings.get(oauth.TOKEN_ENDPOINT_URL.name)
        if not url:
            raise InvalidTokenSource(
                f"OAUTHBEARER needs {name}: a file: URL of a file with a token, or the https: URL "
                "of an issuer"
            )
        scheme = urlsplit(url).scheme
        if scheme not in ("file", "https"):
            raise InvalidTokenSource(f"{name} must be a file: or https: URL")
        if url not in allowed:
            raise InvalidTokenSource(f"{name} is not allowed. Add {url} to {allowed_by}")
        client_id = settings.get(oauth.CLIENT_ID.name) or options.get("clientId")
        secret = settings.get(oauth.CLIENT_SECRET.name) or options.get("clientSecret")
        if scheme == "https" and not (client_id and secret):
            raise InvalidTokenSource(
                f"{name} is the URL of an issuer, which needs clientId=... and clientSecret=... in "
                "sasl.jaas.config"
            )
        scope = settings.get(oauth.SCOPE.name) or options.get("scope")
        return TokenSource(url, client_id, secret, scope, context)

    async def token(self, world: World) -> str:
        """Return a token. Raises SaslRefused, and OSError if an issuer does not answer."""
        parts = urlsplit(self.url)
        if parts.scheme == "file":
            return await world.offload.read(_read_file, world, unquote(parts.path))
        if self._token is None or world.clock.monotonic() >= self._until:
            if self._asking is None:
                self._asking = asyncio.ensure_future(self._renew(world))
                self._asking.add_done_callback(self._asked)
            # A login that gives up leaves the request to the others.
            await asyncio.shield(self._asking)
        return self._token or ""

    async def _renew(self, world: World) -> None:
        now = world.clock.monotonic()
        token, lifetime_s = await world.offload.read(self._ask)
        self._token, self._until = token, now + lifetime_s * _LIFETIME_SHARE

    def _asked(self, asking: asyncio.Future[None]) -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # retrieved, should all logins have given up

    def _ask(self) -> tuple[str, float]:
        """Ask the issuer, in a thread. Return a token and its lifetime in seconds."""
        login = f"{quote_plus(self.client_id or '')}:{quote_plus(self.secret or '')}"
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        request = urllib.request.Request(
            self.url,
            data=urlencode(form).encode(),
            headers={
                "Accept": "application/json",
                "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
            },
        )
        try:
            answer = json.loads(_post(request, self.context()))
            token, lifetime_s = answer["access_token"], float(answer.get("expires_in", 0))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # Its text could have the token.
            kind = type(error).__name__
            raise SaslRefused(f"the issuer {self.url} answers without a token ({kind})") from None
        return _checked(str(token), self.url), lifetime_s


def environment_urls() -> tuple[str, ...]:
    """Return the URLs that clients on this machine may get tokens from."""
    return tuple(filter(None, os.environ.get(ALLOWED_URLS_VARIABLE, "").split(",")))


def _read_file(world: World, path: str) -> str:
    try:
        if world.disk.size(path) > MAX_TOKEN_BYTES:
            raise SaslRefused(f"{path} has more than {MAX_TOKEN_BYTES} bytes: it has no token")
        data = world.disk.read(path)
    except OSError as error:
        raise SaslRefused(f"cannot read the token in {path}: {error.strerror or error}") from error
    return _checked(data.decode("ascii", "replace").strip(), path)


def _checked(token: str, source: str) -> str:
    if len(token) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(token):
        raise SaslRefused(f"{source} has no bearer token: it must have nothing else")
    return token


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead to a URL that is not allowed, and would get the secret."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


def _post(request: urllib.request.Request, context: ssl.SSLContext | None) -> bytes:
    https = urllib.request.HTTPSHandler(context=context)
    opener = urllib.request.build_opener(_NoRedirect, https)
    deadline, data = time.monotonic() + TOKEN_TIMEOUT_S, b""
    try:
        with opener.open(request, timeout=TOKEN_TIMEOUT_S) as response:
            while len(data) <= MAX_TOKEN_BYTES and (piece := response.read1(MAX_TOKEN_BYTES)):
                data += piece
                # The timeout of a socket is that of each read.
                if time.monotonic() > deadline:
                    raise OSError(f"the issuer took longer than {TOKEN_TIMEOUT_S:g} s")
    except urllib.error.HTTPError as error:
        raise SaslRefused(f"the issuer {request.full_url} answered {error.code}") from None
    except http.client.HTTPException as error:
        raise OSError(f"the issuer does not answer with HTTP ({type(error).__name__})") from None
    return data
