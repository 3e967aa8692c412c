"""SSLContexts from Kafka's settings.

OpenSSL reads keys from files only. All keys and chains reach it through memfd, an anonymous file in
memory, so that a key which was decrypted, or which came from a setting, is never on a disk.

There is no compression (CRIME) and no renegotiation (one connection could ask for the work of
thousands of handshakes), and sessions are not resumed by tickets: their key would decrypt recorded
connections. Python cannot turn off OpenSSL's cache of TLS 1.2 sessions; the server looks at the end
of a resumed certificate itself.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.config import ssl_settings as ssl_names
from penstock.config.ssl_settings import (
    NONE,
    REQUIRED,
    InvalidSslError,
    NotValidNowError,
    SslConfig,
    versions,
)
from penstock.limits import CERTIFICATE_WARNING_S
from penstock.security.tls.alerts import AlertingContext
from penstock.security.tls.ciphers import TLS_1_3, cipher_suites
from penstock.security.tls.stores import KeyStore, read_key_store, read_trust_store

log = logging.getLogger(__name__)

_HAS_MEMFD = hasattr(os, "memfd_create")
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """What is known of the certificate of a key store: its subject, alternative names and end."""

    subject: str
    names: frozenset[str]
    not_after: datetime.datetime


@dataclass(frozen=True, slots=True)
class TlsContext:
    """An SSLContext, and the certificate that it presents, from a key store."""

    context: ssl.SSLContext
    certificate: OwnCertificate | None
    store: KeyStore | None = field(default=None, repr=False)


def server_context(config: SslConfig, in_use: KeyStore | None = None) -> TlsContext:
    """Return the context of a listener. Reads files, but no key store if there is one `in_use`,
    which may have expired. Raises InvalidSslError."""
    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0
    # The server's order of suites, as Java's default.
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    store = in_use or read_key_store(config)
    if store is None:
        raise InvalidSslError(
            ssl_names.SSL_KEYSTORE_LOCATION,
            "a TLS listener needs a key store: set ssl.keystore.location and ssl.keystore.type",
        )
    certificate = _set_up(context, config, store, is_in_use=in_use is not None)
    if config.client_auth != NONE:
        required = config.client_auth == REQUIRED
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        _trust(context, config, ssl.Purpose.CLIENT_AUTH)
    return TlsContext(context, certificate, store)


def client_context(config: SslConfig, in_use: KeyStore | None = None) -> TlsContext:
    """Return the context of a client. Reads files, but no key store if there is one `in_use`, which
    may have expired. Raises InvalidSslError."""
    context = AlertingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(config.endpoint_identification_algorithm)
    store = in_use or read_key_store(config)
    certificate = _set_up(context, config, store, is_in_use=in_use is not None)
    _trust(context, config, ssl.Purpose.SERVER_AUTH)
    return TlsContext(context, certificate, store)


def _set_up(
    context: ssl.SSLContext, config: SslConfig, store: KeyStore | None, *, is_in_use: bool
) -> OwnCertificate | None:
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    allowed = _set_ciphers(context, config)
    context.minimum_version = _VERSIONS[allowed[0]]
    context.maximum_version = _VERSIONS[allowed[-1]]
    if store is None:
        return None
    certificate = _own_certificate(store, is_in_use=is_in_use)
    _load(context, store)
    return certificate


def _set_ciphers(context: ssl.SSLContext, config: SslConfig) -> tuple[str, ...]:
    """Set the suites, and return the versions that have one."""
    allowed = versions(config)
    if not config.cipher_suites:
        return allowed
    suites = cipher_suites(config.cipher_suites)
    if suites.tls_1_2:
        context.set_ciphers(":".join(suites.tls_1_2))
    elif "TLSv1.3" in allowed:
        allowed = ("TLSv1.3",)
    if not suites.tls_1_3 and suites.tls_1_2:
        allowed = tuple(version for version in allowed if version != "TLSv1.3")
    if not allowed or (allowed == ("TLSv1.2",) and not suites.tls_1_2):
        raise InvalidSslError(
            ssl_names.SSL_CIPHER_SUITES,
            f"{','.join(config.cipher_suites)} has no suite for the enabled versions of TLS, "
            f"{','.join(versions(config))}",
        )
    if suites.tls_1_3 and set(suites.tls_1_3) != set(TLS_1_3):
        set_ciphersuites = getattr(context, "set_ciphersuites", None)
        if set_ciphersuites is None:  # before Python 3.15
            log.warning(
                "%sssl.cipher.suites: this Python cannot choose among the suites of TLS 1.3. "
                "Connections may use any of %s",
                config.prefix,
                ",".join(TLS_1_3),
            )
        else:
            set_ciphersuites(":".join(suites.tls_1_3))
    return allowed


def _trust(context: ssl.SSLContext, config: SslConfig, purpose: ssl.Purpose) -> None:
    # Java trusts any certificate of the trust store, not only those that signed themselves.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusted = read_trust_store(config)
    if trusted is None:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(cadata=trusted.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        source = config.truststore_location or "ssl.truststore.certificates"
        raise InvalidSslError(
            ssl_names.SSL_TRUSTSTORE_LOCATION,
            f"{source} has a certificate that OpenSSL cannot read: {_text(error)}",
        ) from error


def _load(context: ssl.SSLContext, store: KeyStore) -> None:
    asked = False

    def password() -> str:
        # Without this function OpenSSL asks at the terminal.
        nonlocal asked
        asked = True
        return store.password or ""

    try:
        if store.file is not None and not _HAS_MEMFD:
            context.load_cert_chain(store.file, None, password)
            return
        with _memory_file(store.chain) as chain, _memory_file(store.key) as key:
            context.load_cert_chain(chain, key, password)
    except (ssl.SSLError, ValueError) as error:
        raise _unusable(store, error, asked=asked) from error


def _unusable(store: KeyStore, error: Exception, *, asked: bool) -> InvalidSslError:
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return InvalidSslError(
            ssl_names.SSL_KEYSTORE_LOCATION,
            f"the private key of {store.source} does not belong to its first certificate. The "
            "chain begins with the certificate of this node",
        )
    if asked and not store.password:
        return InvalidSslError(
            ssl_names.SSL_KEY_PASSWORD,
            f"the private key of {store.source} is encrypted: set ssl.key.password",
        )
    if asked:
        return InvalidSslError(
            ssl_names.SSL_KEY_PASSWORD,
            f"cannot decrypt the private key of {store.source}: ssl.key.password is wrong",
        )
    return InvalidSslError(
        ssl_names.SSL_KEYSTORE_LOCATION,
        f"OpenSSL cannot use the key and certificates of {store.source}: {_text(error)}",
    )


def _own_certificate(store: KeyStore, *, is_in_use: bool) -> OwnCertificate:
    """Check the first certificate of a chain, and return what is known of it. One that is in use
    may have expired."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(store.chain)
    except ValueError as error:
        raise InvalidSslError(
            ssl_names.SSL_KEYSTORE_LOCATION,
            f"cannot read the first certificate of {store.source}: {error}",
        ) from error
    now = datetime.datetime.now(datetime.UTC)
    end, subject = certificate.not_valid_after_utc, certificate.subject.rfc4514_string()
    if not is_in_use and (now > end or now < certificate.not_valid_before_utc):
        state = "expired" if now > end else "is not valid before"
        when = end if now > end else certificate.not_valid_before_utc
        raise NotValidNowError(
            ssl_names.SSL_KEYSTORE_LOCATION,
            f"the certificate of {store.source} ({subject}) {state} {when:%Y-%m-%d %H:%M} UTC. "
            "Replace it, or check the clock of this machine",
        )
    if not is_in_use and (end - now).total_seconds() < CERTIFICATE_WARNING_S:
        log.warning(
            "the certificate of %s (%s) expires %s UTC. Replace the file: new connections use the "
            "new certificate without a restart",
            store.source,
            subject,
            f"{end:%Y-%m-%d %H:%M}",
        )
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return OwnCertificate(subject, frozenset(), end)
    return OwnCertificate(subject, frozenset(map(str, names)), end)


@contextlib.contextmanager
def _memory_file(data: bytes) -> Iterator[str]:
    """Yield the path of an anonymous file in memory with this content."""
    if not _HAS_MEMFD:
        raise InvalidSslError(
            ssl_names.SSL_KEYSTORE_LOCATION,
            "keys in settings and in PKCS12 need Linux: other systems have no memfd, and such a "
            "key must not be on a disk. Use a file in PEM format",
        )
    descriptor = os.memfd_create("penstock-tls", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _text(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
