"""The keys of a JSON Web Key Set, from a file or a URL, which are read again from time to time.

A URL must be in penstock.sasl.oauthbearer.allowed.urls (CVE-2025-27817). It is fetched in a thread,
without redirects. If the keys cannot be read, the last ones stay in use.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import time
import urllib.error
import urllib.request
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from penstock.config.oauthbearer_settings import ALLOWED_URLS, JWKS_ENDPOINT_URL
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import JWKS_MIN_INTERVAL_S, JWKS_TIMEOUT_S, MAX_JWKS_BYTES
from penstock.security.jwt_checker import InvalidKeys, VerificationKey, parse_jwks
from penstock.world import World

log = logging.getLogger(__name__)


class Jwks:
    """`name` is that of the setting, for messages. Raises KafkaError INVALID_CONFIG for a URL that
    is not allowed, and for a file that cannot be used."""

    def __init__(
        self,
        world: World,
        url: str,
        allowed: tuple[str, ...],
        *,
        refresh_s: float,
        backoff_s: float,
        max_backoff_s: float,
        name: str = JWKS_ENDPOINT_URL.name,
    ) -> None:
        self._world = world
        self._url = url
        self._refresh_s = max(refresh_s, JWKS_MIN_INTERVAL_S)
        self._backoff_s, self._max_backoff_s = max(backoff_s, 0.1), max(max_backoff_s, 0.1)
        self._wanted = asyncio.Event()
        self.keys: tuple[VerificationKey, ...] = ()
        parts = urlsplit(url)
        if parts.scheme not in ("file", "http", "https"):
            raise _invalid(f'{name}: only "http", "https", and "file" URLs are supported')
        if url not in allowed:
            raise _invalid(f"{name} is not allowed. Add {url} to {ALLOWED_URLS.name}")
        self._path = unquote(parts.path) if parts.scheme == "file" else None
        if self._path is not None:
            try:
                self.keys = parse_jwks(world.disk.read(self._path))
            except OSError as error:
                raise _invalid(f"{name}: {self._path}: {error.strerror or error}") from error
            except InvalidKeys as error:
                raise _invalid(f"{name}: {self._path}: {error}") from error

    def missing(self) -> None:
        """Read the keys soon: a token names one that is not known."""
        self._wanted.set()

    async def follow(self) -> NoReturn:
        """Read the keys now and again."""
        pause_s = self._backoff_s
        while True:
            self._wanted.clear()
            try:
                await self.read()
                pause_s = self._backoff_s
                # Tokens of strangers must not make this node ask more often.
                await asyncio.sleep(JWKS_MIN_INTERVAL_S)
                try:
                    async with asyncio.timeout(self._refresh_s - JWKS_MIN_INTERVAL_S):
                        await self._wanted.wait()
                except TimeoutError:
                    continue
            except (OSError, ValueError) as error:
                log.warning(
                    "cannot read the keys of %s: %s. %d keys stay in use; the next attempt is in "
                    "%g s",
                    self._url,
                    error,
                    len(self.keys),
                    pause_s,
                )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, self._max_backoff_s)

    async def read(self) -> None:
        """Read the keys once. Raises OSError and ValueError."""
        if self._path is not None:
            data = await self._world.offload.read(self._world.disk.read, self._path)
        else:
            data = await self._world.offload.read(_fetch, self._url)
        self.keys = parse_jwks(data)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead to a URL that is not allowed."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


def _fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirect)
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    try:
        # The timeout of a socket is that of each read: a server could send a byte now and again.
        deadline = time.monotonic() + JWKS_TIMEOUT_S
        data = b""
        with opener.open(request, timeout=JWKS_TIMEOUT_S) as response:
            while len(data) <= MAX_JWKS_BYTES and (piece := response.read1(MAX_JWKS_BYTES)):
                data += piece
                if time.monotonic() > deadline:
                    raise OSError(f"the answer took longer than {JWKS_TIMEOUT_S:g} s")
        return data
    except urllib.error.HTTPError as error:
        raise OSError(f"the server answered {error.code}") from None
    except http.client.HTTPException as error:
        raise OSError(f"the server does not answer with HTTP ({type(error).__name__})") from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
