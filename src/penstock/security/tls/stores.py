"""Key stores and trust stores: PEM and PKCS12, from files or settings, as PEM for OpenSSL.

Java's JKS is refused with the command that converts it. As in Java, a file in PKCS12 is also read
where the type is JKS, the default.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.config import ssl_settings as ssl_names
from penstock.config.setting import Setting
from penstock.config.ssl_settings import JKS, PEM, PKCS12, InvalidSslError, SslConfig
from penstock.limits import MAX_KEYSTORE_BYTES

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_CERTIFICATES = (b"CERTIFICATE", b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE")


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and its certificate chain, in PEM. `source` names them in messages. `file` is
    the one that has both in PEM; None if they come from elsewhere."""

    key: bytes = field(repr=False)
    chain: bytes
    password: str | None = field(repr=False)
    source: str
    file: str | None = None


def read_key_store(config: SslConfig) -> KeyStore | None:
    """Return the key store; None if there is none. Raises InvalidSslError."""
    inline = config.keystore_key, config.keystore_certificate_chain
    location = config.keystore_location
    if any(inline):
        return _inline_key_store(config)
    if not location:
        return None
    data = _read(ssl_names.SSL_KEYSTORE_LOCATION, location)
    kind = _kind(ssl_names.SSL_KEYSTORE_TYPE, config.keystore_type, location, data, config)
    if kind == PKCS12:
        return _pkcs12_key_store(config, data, location)
    blocks = pem_blocks(data)
    keys = [block for name, block in blocks if name.endswith(b"PRIVATE KEY")]
    chain = [block for name, block in blocks if name in _CERTIFICATES]
    for found, text in ((keys, "private key"), (chain, "certificate")):
        if not found:
            raise InvalidSslError(
                ssl_names.SSL_KEYSTORE_LOCATION,
                f"{location} has no {text}: a key store in PEM has the private key and its "
                "certificate chain, one after the other",
            )
    return KeyStore(keys[0], b"".join(chain), config.key_password, location, location)


def read_trust_store(config: SslConfig) -> bytes | None:
    """Return the trusted certificates in PEM; None if there is no trust store, and those of the
    operating system are trusted. Raises InvalidSslError."""
    text, location = config.truststore_certificates, config.truststore_location
    if text:
        if location or config.truststore_type.upper() != PEM:
            raise InvalidSslError(
                ssl_names.SSL_TRUSTSTORE_CERTIFICATES,
                "ssl.truststore.certificates needs ssl.truststore.type=PEM, and no "
                "ssl.truststore.location",
            )
        return _certificates(text.encode(), ssl_names.SSL_TRUSTSTORE_CERTIFICATES)
    if not location:
        return None
    data = _read(ssl_names.SSL_TRUSTSTORE_LOCATION, location)
    kind = _kind(ssl_names.SSL_TRUSTSTORE_TYPE, config.truststore_type, location, data, config)
    if kind == PEM:
        return _certificates(data, ssl_names.SSL_TRUSTSTORE_LOCATION, location)
    _key, certificate, others = _load_pkcs12(
        data, config.truststore_password, ssl_names.SSL_TRUSTSTORE_PASSWORD, location
    )
    found = [*([] if certificate is None else [certificate]), *others]
    if not found:
        raise InvalidSslError(
            ssl_names.SSL_TRUSTSTORE_LOCATION, f"{location} has no certificate: add one to trust"
        )
    return b"".join(map(_pem, found))


def pem_blocks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the names and texts of the blocks of PEM. Blocks whose lines were joined with blanks,
    as in a properties file, are wrapped again: OpenSSL wants lines of 64 characters."""
    blocks = []
    for match in _BLOCK.finditer(data):
        name, body = match[1], match[2]
        if b":" in body:  # headers of an encrypted key in OpenSSL's former format
            blocks.append((name, match[0] + b"\n"))
            continue
        text = b"".join(body.split())
        lines = b"\n".join(text[at : at + 64] for at in range(0, len(text), 64))
        blocks.append((name, b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (name, lines, name)))
    return blocks


def _inline_key_store(config: SslConfig) -> KeyStore:
    key, chain = config.keystore_key, config.keystore_certificate_chain
    setting = ssl_names.SSL_KEYSTORE_KEY
    if not key or not chain or config.keystore_location or config.keystore_type.upper() != PEM:
        raise InvalidSslError(
            setting,
            "ssl.keystore.key and ssl.keystore.certificate.chain must be set together, with "
            "ssl.keystore.type=PEM and without ssl.keystore.location",
        )
    keys = [block for name, block in pem_blocks(key.encode()) if name.endswith(b"PRIVATE KEY")]
    if not keys:
        raise InvalidSslError(setting, "ssl.keystore.key has no private key in PEM format")
    certificates = _certificates(chain.encode(), ssl_names.SSL_KEYSTORE_CERTIFICATE_CHAIN)
    return KeyStore(keys[0], certificates, config.key_password, "ssl.keystore.key")


def _pkcs12_key_store(config: SslConfig, data: bytes, location: str) -> KeyStore:
    from cryptography.hazmat.primitives import serialization

    password, key_password = config.keystore_password, config.key_password
    if key_password is not None and key_password != password:
        raise InvalidSslError(
            ssl_names.SSL_KEY_PASSWORD,
            f"ssl.key.password differs from ssl.keystore.password: the key in {location} has the "
            "password of its store, as Java requires of PKCS12",
        )
    key, certificate, others = _load_pkcs12(
        data, password, ssl_names.SSL_KEYSTORE_PASSWORD, location
    )
    if key is None or certificate is None:
        raise InvalidSslError(
            ssl_names.SSL_KEYSTORE_LOCATION,
            f"{location} has no private key with its certificate",
        )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = [certificate, *_issuers(certificate, others)]
    return KeyStore(key_pem, b"".join(map(_pem, chain)), None, location)


def _issuers(certificate: Certificate, others: list[Certificate]) -> list[Certificate]:
    """Return the issuers of a certificate in order: PKCS12 stores certificates in any order."""
    chain, last = [], certificate
    left = list(others)
    while last.issuer != last.subject:
        found = next((other for other in left if other.subject == last.issuer), None)
        if found is None:
            break
        left.remove(found)
        chain.append(found)
        last = found
    return chain


def _load_pkcs12(
    data: bytes, password: str | None, setting: Setting[Any], location: str
) -> tuple[Any, Certificate | None, list[Certificate]]:
    # Imported on first use: it takes 30 ms, and most nodes and clients need no PKCS12.
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

    try:
        return load_key_and_certificates(data, None if password is None else password.encode())
    except Exception as error:  # the library raises many kinds of errors for a broken file
        if password is None:
            reason = f"cannot read {location} without a password: set {setting.name}"
        else:
            reason = (
                f"cannot read {location}: the password in {setting.name} is wrong, or the file is "
                "not in PKCS12 format"
            )
        raise InvalidSslError(setting, reason) from error


def _pem(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _certificates(data: bytes, setting: Setting[Any], location: str | None = None) -> bytes:
    found = b"".join(block for name, block in pem_blocks(data) if name in _CERTIFICATES)
    if not found:
        raise InvalidSslError(
            setting, f"{location or setting.name} has no certificate in PEM format"
        )
    return found


def _read(setting: Setting[Any], location: str) -> bytes:
    try:
        with open(location, "rb") as file:
            data = file.read(MAX_KEYSTORE_BYTES + 1)
    except OSError as error:
        raise InvalidSslError(
            setting, f"cannot read {setting.name}={location}: {error.strerror or error}"
        ) from error
    if len(data) > MAX_KEYSTORE_BYTES:
        raise InvalidSslError(
            setting,
            f"{setting.name}={location} has more than {MAX_KEYSTORE_BYTES} bytes: it is not a "
            "store of keys or certificates",
        )
    return data


def _kind(setting: Setting[Any], given: str, location: str, data: bytes, config: SslConfig) -> str:
    """Return PEM or PKCS12, the format in which a file is to be read."""
    kind, is_pem = given.upper(), b"-----BEGIN " in data
    refuse: Callable[[str], InvalidSslError] = lambda reason: InvalidSslError(setting, reason)  # noqa: E731
    if data.startswith(_JKS_MAGIC):
        target = re.sub(r"(\.jks)?$", ".p12", location, count=1)
        raise refuse(
            f"{location} is in Java's own format JKS, which only Java reads. Convert it with "
            f"keytool -importkeystore -srckeystore {location} -destkeystore {target} "
            f"-deststoretype PKCS12 and set {config.prefix}{setting.name}=PKCS12 and the location "
            f"{target}"
        )
    if kind not in (JKS, PKCS12, PEM):
        raise refuse(f"{setting.name}={given} is not supported. Use PEM or PKCS12")
    if kind == PEM and not is_pem:
        raise refuse(f"{location} is not in PEM format. If it is in PKCS12, set {setting.name}")
    if kind != PEM and is_pem:
        raise refuse(f"{location} is in PEM format: set {config.prefix}{setting.name}=PEM")
    return PEM if kind == PEM else PKCS12
