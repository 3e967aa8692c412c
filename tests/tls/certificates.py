"""Certificates for tests, made when they are needed: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def name_of(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "US"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Org"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "ServiceUsers"),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


@dataclass(frozen=True)
class Signed:
    """A private key and its certificate, with that of the authority which signed it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def chain_pem(self) -> str:
        return pem(self.certificate) + pem(self.issuer)

    def key_pem(self, password: str | None = None) -> str:
        encryption = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        ).decode()

    def write_pem(self, path: Path, password: str | None = None) -> str:
        path.write_text(self.key_pem(password) + self.chain_pem)
        return str(path)

    def write_pkcs12(self, path: Path, password: str) -> str:
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"node",
                self.key,
                self.certificate,
                [self.issuer],
                serialization.BestAvailableEncryption(password.encode()),
            )
        )
        return str(path)


class Authority:
    """Signs certificates, which are valid now unless `start` and `end` say otherwise."""

    def __init__(self, common_name: str = "Test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = name_of(common_name)
        self.certificate = (
            _builder(name, name, self._key, -DAY, 30 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return pem(self.certificate)

    def write_pem(self, path: Path) -> str:
        path.write_text(self.pem)
        return str(path)

    def sign(
        self,
        common_name: str,
        hosts: Sequence[str] = (),
        *,
        start: datetime.timedelta = -DAY,
        end: datetime.timedelta = 30 * DAY,
    ) -> Signed:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name_of(common_name), self.certificate.subject, key, start, end)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
            )
        return Signed(key, builder.sign(self._key, hashes.SHA256()), self.certificate)


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    start: datetime.timedelta,
    end: datetime.timedelta,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + start)
        .not_valid_after(now + end)
    )
