"""A certificate authority for one cluster, and the certificates that it signs for its nodes.

Keys are on the curve P-256, which every client supports and whose handshakes are cheap. A node's
certificate is for servers and for clients: nodes connect to each other.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

# The authority outlives its cluster. Java and browsers accept certificates of at most 398 days;
# `penstock up` renews those of nodes when it starts.
AUTHORITY_LIFETIME = datetime.timedelta(days=3650)
NODE_LIFETIME = datetime.timedelta(days=397)
# Clocks of machines differ.
_BACKDATED = datetime.timedelta(hours=1)


class Authority:
    """Signs certificates. `key_pem` is secret, `certificate_pem` is what clients trust."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @staticmethod
    def create(name: str, now: datetime.datetime) -> Authority:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _builder(name, name, key.public_key(), now, AUTHORITY_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        return Authority(key, certificate)

    @staticmethod
    def load(key_pem: bytes, certificate_pem: bytes) -> Authority:
        """Raises ValueError."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = serialization.load_pem_private_key(key_pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key is not one that penstock up made")
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        if certificate.public_key() != key.public_key():
            raise ValueError("key and certificate do not belong together")
        return Authority(key, certificate)

    @property
    def key_pem(self) -> bytes:
        return _key_pem(self._key)

    @property
    def certificate_pem(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding

        return self._certificate.public_bytes(Encoding.PEM)

    def issue(self, name: str, hosts: Iterable[str], now: datetime.datetime) -> bytes:
        """Return a new private key and its certificate chain, in one PEM text."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        key = ec.generate_private_key(ec.SECP256R1())
        (issuer,) = self._certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        from_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _builder(name, str(issuer.value), key.public_key(), now, NODE_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectAlternativeName(map(_host, hosts)), critical=False)
            .add_extension(from_issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _key_pem(key) + certificate.public_bytes(Encoding.PEM) + self.certificate_pem


def end_of(pem: bytes) -> datetime.datetime:
    """Return when the first certificate of a PEM text expires. Raises ValueError."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem).not_valid_after_utc


def _builder(
    name: str,
    issuer: str,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    lifetime: datetime.timedelta,
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + lifetime)
    )


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
