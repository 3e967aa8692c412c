"""The names of cipher suites: Java's, which are IANA's, and OpenSSL's. PURE but for OpenSSL's list.

TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256 in OpenSSL. The names of TLS
1.3, as TLS_AES_256_GCM_SHA384, are the same.
"""

from __future__ import annotations

import re
import ssl
from functools import lru_cache
from typing import NamedTuple

from penstock.config.ssl_settings import SSL_CIPHER_SUITES, InvalidSslError

TLS_1_3 = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
# Suites without encryption or without certificates, and broken ones.
_INSECURE = re.compile(r"NULL|EXPORT|ANON|ADH|AECDH|PSK|SRP|RC4|DES|MD5|SEED|IDEA")


class CipherSuites(NamedTuple):
    """OpenSSL's names of the suites of TLS 1.2, and the suites of TLS 1.3."""

    tls_1_2: tuple[str, ...]
    tls_1_3: tuple[str, ...]


def cipher_suites(names: tuple[str, ...]) -> CipherSuites:
    """Sort the suites of ssl.cipher.suites by version. Raises InvalidSslError."""
    old, new = [], []
    for name in names:
        if name in TLS_1_3:
            new.append(name)
        else:
            old.append(_openssl_name(name))
    return CipherSuites(tuple(old), tuple(new))


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2 with IANA's name."""
    exchange, with_, cipher = re.sub("^(TLS|SSL)_", "", name).partition("_WITH_")
    if not with_:
        return name
    cipher = re.sub(r"_CCM_8$", "_CCM8", cipher)
    cipher = re.sub(r"^(AES|CAMELLIA|ARIA)_(128|256)", r"\1\2", cipher)
    if cipher.startswith("CHACHA20"):
        cipher = cipher.removesuffix("_SHA256")
    # OpenSSL does not mention CBC, nor RSA as the exchange of keys.
    parts = ["" if exchange == "RSA" else exchange, re.sub("_CBC(?=_)", "", cipher)]
    return "-".join(filter(None, parts)).replace("_", "-")


def _openssl_name(name: str) -> str:
    found = openssl_name(name)
    if _INSECURE.search(name.upper()) or found not in _known():
        raise InvalidSslError(
            SSL_CIPHER_SUITES,
            f"{name} is not a secure cipher suite of this OpenSSL ({ssl.OPENSSL_VERSION})",
        )
    return found


@lru_cache(1)
def _known() -> frozenset[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL")
    return frozenset(cipher["name"] for cipher in context.get_ciphers())
