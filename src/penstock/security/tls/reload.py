"""SSLContexts that follow their settings and files while a node runs.

Certificates are renewed more often than nodes are restarted. The files of a context are looked at
every TLS_RELOAD_S, and its settings, which AlterConfigs may change (KIP-226), with them. A change
makes a new SSLContext, which new connections use. If that fails, or the certificate is for another
node, the former key and certificate stay, and the log says why. A changed trust store is used with
them nevertheless: an authority that must not be trusted any more does not wait for a certificate
that is to be renewed.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import Protocol

from penstock.config import ssl_settings as ssl_names
from penstock.config.ssl_settings import InvalidSslError, NotValidNowError, SslConfig
from penstock.security.tls.context import OwnCertificate, TlsContext
from penstock.security.tls.stores import KeyStore

log = logging.getLogger(__name__)

_FileStatus = tuple[int, int, int] | None
_Fingerprint = tuple[SslConfig, tuple[_FileStatus, ...]]


class BuildContext(Protocol):
    """Makes a context. It reads the key store, unless one is `in_use`."""

    def __call__(self, config: SslConfig, in_use: KeyStore | None = None, /) -> TlsContext: ...


class ReloadedContext:
    """`name` is that of the listener or link, for the log. Reads files. Raises InvalidSslError."""

    def __init__(self, name: str, build: BuildContext, config: SslConfig) -> None:
        self._name = name
        self._build = build
        self._seen = _fingerprint(config)
        self._trust_seen = _trust_fingerprint(config)
        self._current = build(config)
        self._refusal = ""
        self.reloads = 0
        self.failed_reloads = 0

    @property
    def certificate(self) -> OwnCertificate | None:
        """The certificate that new connections present."""
        return self._current.certificate

    def context(self) -> ssl.SSLContext:
        """Return the context for a connection that is opened now."""
        return self._current.context

    def update(self, config: SslConfig) -> None:
        """Make a new context if the settings or the files have changed. Reads files: call it in a
        thread, one call at a time."""
        seen = _fingerprint(config)
        if seen == self._seen:
            return
        try:
            found = self._build(config)
            _check_successor(self._current.certificate, found.certificate, config)
        except InvalidSslError as error:
            # The same files are not tried again, unless the time may make them valid. The same
            # reason is not reported again.
            if not isinstance(error, NotValidNowError):
                self._seen = seen
            if error.reason != self._refusal:
                self._refusal = error.reason
                self.failed_reloads += 1
                log.error(
                    "the changed TLS settings or files of %s cannot be used: %s. Connections use "
                    "the former ones",
                    self._name,
                    error.reason,
                )
            self._update_trust(config)
            return
        self._seen, self._refusal = seen, ""
        self._trust_seen = _trust_fingerprint(config)
        self._current = found
        self.reloads += 1
        certificate = found.certificate
        log.info(
            "new connections of %s use the changed TLS settings or files%s",
            self._name,
            ""
            if certificate is None
            else f", with a certificate ({certificate.subject}) that is valid until "
            f"{certificate.not_after:%Y-%m-%d %H:%M} UTC",
        )

    def _update_trust(self, config: SslConfig) -> None:
        """Use a changed trust store with the former key and certificate."""
        seen, store = _trust_fingerprint(config), self._current.store
        if seen == self._trust_seen or store is None:
            return
        self._trust_seen = seen
        try:
            self._current = self._build(config, store)
        except InvalidSslError as error:
            log.error("the changed trust store of %s cannot be used: %s", self._name, error.reason)
            return
        self.reloads += 1
        log.info(
            "new connections of %s use the changed trust store, with the former certificate",
            self._name,
        )


def _check_successor(
    before: OwnCertificate | None, after: OwnCertificate | None, config: SslConfig
) -> None:
    """As in Kafka, a certificate replaces only one of the same node (KIP-978)."""
    if before is None or after is None:
        return
    if not config.allow_dn_changes and before.subject != after.subject:
        raise InvalidSslError(
            ssl_names.SSL_ALLOW_DN_CHANGES,
            f"the certificate is of {after.subject} in place of {before.subject}. Set "
            "ssl.allow.dn.changes=true to allow it",
        )
    if not config.allow_san_changes and not before.names <= after.names:
        raise InvalidSslError(
            ssl_names.SSL_ALLOW_SAN_CHANGES,
            f"the certificate lacks {', '.join(sorted(before.names - after.names))} of its "
            "subject alternative names. Set ssl.allow.san.changes=true to allow it",
        )


def _fingerprint(config: SslConfig) -> _Fingerprint:
    return config, tuple(map(_file, config.files))


def _trust_fingerprint(config: SslConfig) -> tuple[object, ...]:
    location = config.truststore_location
    return (
        config.client_auth,
        config.truststore_type,
        config.truststore_password,
        config.truststore_certificates,
        location,
        None if location is None else _file(location),
    )


def _file(path: str) -> _FileStatus:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
