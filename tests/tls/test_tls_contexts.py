"""SSLContexts from Kafka's settings: formats of stores, versions, suites, and what is refused."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config.ssl_settings import InvalidSslError, SslConfig, client_ssl_config
from penstock.security.tls.ciphers import openssl_name
from penstock.security.tls.context import client_context, server_context
from tests.tls.certificates import DAY, Authority, Signed

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def signed(authority: Authority) -> Signed:
    return authority.sign("node", ["localhost"])


def shake_hands(server: SslConfig, client: SslConfig, host: str = "localhost") -> ssl.SSLObject:
    """Return the server's end of a connection. Raises ssl.SSLError of either end."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client_context(client).context.wrap_bio(to_client, to_server, server_hostname=host),
        server_context(server).context.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not waiting
    return ends[1]


def trusting(authority: Authority, **others: object) -> SslConfig:
    trust = SslConfig(truststore_type="PEM", truststore_certificates=authority.pem)
    return replace(trust, **others)  # type: ignore[arg-type]


def inline(signed: Signed, **others: object) -> SslConfig:
    config = SslConfig(
        keystore_type="PEM",
        keystore_key=signed.key_pem(),
        keystore_certificate_chain=signed.chain_pem,
    )
    return replace(config, **others)  # type: ignore[arg-type]


def stores(signed: Signed, directory: Path) -> dict[str, SslConfig]:
    pem = signed.write_pem(directory / "a.pem")
    encrypted = signed.write_pem(directory / "b.pem", PASSWORD)
    pkcs12 = signed.write_pkcs12(directory / "a.p12", PASSWORD)
    joined = signed.key_pem().replace("\n", " "), signed.chain_pem.replace("\n", " ")
    return {
        "a file in PEM": SslConfig(keystore_type="PEM", keystore_location=pem),
        "with an encrypted key": SslConfig(
            keystore_type="PEM", keystore_location=encrypted, key_password=PASSWORD
        ),
        "PKCS12": SslConfig(
            keystore_type="PKCS12", keystore_location=pkcs12, keystore_password=PASSWORD
        ),
        "PKCS12 without its type, as Java": SslConfig(
            keystore_location=pkcs12, keystore_password=PASSWORD
        ),
        "inline": inline(signed),
        "inline with an encrypted key": inline(
            signed, keystore_key=signed.key_pem(PASSWORD), key_password=PASSWORD
        ),
        "inline in one line": inline(
            signed, keystore_key=joined[0], keystore_certificate_chain=joined[1]
        ),
    }


def test_every_format_of_a_key_store_serves_a_verifying_client(
    authority: Authority, signed: Signed, tmp_path: Path
) -> None:
    for name, config in stores(signed, tmp_path).items():
        assert shake_hands(config, trusting(authority)).version() == "TLSv1.3", name


def test_trust_store_may_be_a_file_in_pem_or_pkcs12(
    authority: Authority, signed: Signed, tmp_path: Path
) -> None:
    pem = authority.write_pem(tmp_path / "ca.pem")
    pkcs12 = signed.write_pkcs12(tmp_path / "ca.p12", PASSWORD)
    for client in (
        SslConfig(truststore_type="PEM", truststore_location=pem),
        SslConfig(
            truststore_type="PKCS12", truststore_location=pkcs12, truststore_password=PASSWORD
        ),
    ):
        assert shake_hands(inline(signed), client).version() == "TLSv1.3"


@pytest.mark.skipif(shutil.which("keytool") is None, reason="needs Java's keytool")
def test_stores_of_keytool_are_read_and_jks_is_refused(tmp_path: Path) -> None:
    common = ["-storepass", PASSWORD, "-alias", "n", "-noprompt"]
    names = ["-dname", "CN=node", "-ext", "san=dns:localhost", "-keyalg", "EC", "-validity", "9"]

    def run(*words: str) -> None:
        subprocess.run(["keytool", *words], check=True, capture_output=True)

    for kind in ("PKCS12", "JKS"):
        store = str(tmp_path / f"s.{kind}")
        run("-genkeypair", "-storetype", kind, "-keystore", store, *common, *names)
    key, certificate = str(tmp_path / "s.PKCS12"), str(tmp_path / "c.der")
    run("-exportcert", "-keystore", key, "-file", certificate, *common)
    trust = str(tmp_path / "t.p12")
    run("-importcert", "-storetype", "PKCS12", "-keystore", trust, "-file", certificate, *common)
    server = SslConfig(keystore_location=key, keystore_password=PASSWORD)
    client = SslConfig(
        truststore_type="PKCS12", truststore_location=trust, truststore_password=PASSWORD
    )
    assert shake_hands(server, client).version() == "TLSv1.3"
    jks = str(tmp_path / "s.JKS")
    with pytest.raises(InvalidSslError, match="keytool -importkeystore -srckeystore"):
        server_context(SslConfig(keystore_location=jks, keystore_password=PASSWORD))


def test_key_never_touches_a_disk(
    signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []
    load = ssl.SSLContext.load_cert_chain

    def recording(self: ssl.SSLContext, chain: str, key: str, password: object) -> None:
        paths.extend(map(os.readlink, (chain, key)))
        load(self, chain, key, password)  # type: ignore[arg-type]

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", recording)
    for config in stores(signed, tmp_path).values():
        server_context(config)
    assert len(paths) == 14
    assert all(path.startswith("/memfd:") for path in paths), paths


@pytest.mark.parametrize(
    ("change", "setting", "reason"),
    [
        ({"keystore_location": "/no/file"}, "ssl.keystore.location", "No such file"),
        ({"keystore_type": "PKCS12"}, "ssl.keystore.type", "is in PEM format"),
        ({"keystore_type": "JKS"}, "ssl.keystore.type", "set ssl.keystore.type=PEM"),
        ({"keystore_type": "BCFKS"}, "ssl.keystore.type", "Use PEM or PKCS12"),
        ({"key_password": "wrong"}, "ssl.key.password", "ssl.key.password is wrong"),
        ({"key_password": None}, "ssl.key.password", "is encrypted: set ssl.key.password"),
        ({"keystore_key": "k"}, "ssl.keystore.key", "must be set together"),
    ],
)
def test_unusable_key_store_is_refused_with_its_reason(
    signed: Signed, tmp_path: Path, change: dict[str, object], setting: str, reason: str
) -> None:
    path = signed.write_pem(tmp_path / "a.pem", PASSWORD)
    config = SslConfig(keystore_type="PEM", keystore_location=path, key_password=PASSWORD)
    server_context(config)
    with pytest.raises(InvalidSslError, match=reason) as refused:
        server_context(replace(config, **change))  # type: ignore[arg-type]
    assert refused.value.setting.name == setting


def test_wrong_password_of_pkcs12_is_refused_without_showing_it(
    signed: Signed, tmp_path: Path
) -> None:
    path = signed.write_pkcs12(tmp_path / "a.p12", PASSWORD)
    for password, reason in (("s3cret", "is wrong"), (None, "without a password")):
        config = SslConfig(
            keystore_type="PKCS12", keystore_location=path, keystore_password=password
        )
        with pytest.raises(InvalidSslError, match=reason) as refused:
            server_context(config)
        assert "s3cret" not in str(refused.value)
        assert "s3cret" not in repr(config)


def test_key_of_another_certificate_is_refused(authority: Authority, signed: Signed) -> None:
    other = authority.sign("other")
    config = inline(signed, keystore_key=other.key_pem())
    with pytest.raises(InvalidSslError, match="does not belong to its first certificate"):
        server_context(config)


def test_certificate_out_of_its_time_is_refused(authority: Authority) -> None:
    for start, end, reason in ((-3 * DAY, -DAY, "expired"), (DAY, 3 * DAY, "not valid before")):
        signed = authority.sign("node", ["localhost"], start=start, end=end)
        with pytest.raises(InvalidSslError, match=reason):
            server_context(inline(signed))


def test_certificate_that_expires_soon_is_reported(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    server_context(inline(authority.sign("node", end=2 * DAY)))
    assert "expires" in caplog.text


def test_certificate_of_another_host_is_refused_unless_names_are_not_compared(
    authority: Authority,
) -> None:
    server = inline(authority.sign("node", ["broker-1", "10.0.0.1"]))
    shake_hands(server, trusting(authority), "broker-1")
    shake_hands(server, trusting(authority), "10.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, trusting(authority), "broker-2")
    shake_hands(server, trusting(authority, endpoint_identification_algorithm=""), "broker-2")


def test_certificate_of_another_authority_is_refused(signed: Signed) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        shake_hands(inline(signed), trusting(Authority("Other CA")))


def test_any_certificate_of_the_trust_store_is_trusted_as_in_java(signed: Signed) -> None:
    pem = signed.chain_pem.split("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----"
    client = SslConfig(truststore_type="PEM", truststore_certificates=pem)
    assert shake_hands(inline(signed), client).version() == "TLSv1.3"


@pytest.mark.parametrize("auth", ["required", "requested", "none"])
def test_client_certificate_is_asked_for_as_set(
    authority: Authority, signed: Signed, auth: str
) -> None:
    server = inline(
        signed,
        client_auth=auth,
        truststore_type="PEM",
        truststore_certificates=authority.pem,
    )
    user = authority.sign("Duke")
    client = trusting(
        authority,
        keystore_type="PEM",
        keystore_key=user.key_pem(),
        keystore_certificate_chain=user.chain_pem,
    )
    presented = shake_hands(server, client).getpeercert(binary_form=True)
    assert (presented is not None) == (auth != "none")
    if auth == "required":
        with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            shake_hands(server, trusting(authority))
    else:
        assert shake_hands(server, trusting(authority)).getpeercert(binary_form=True) is None


@pytest.mark.parametrize(
    ("settings", "version"),
    [
        ({}, "TLSv1.3"),
        ({"protocol": "TLSv1.2"}, "TLSv1.2"),
        ({"protocol": "TLS"}, "TLSv1.3"),
        ({"enabled_protocols": ("TLSv1.2",)}, "TLSv1.2"),
        ({"enabled_protocols": ()}, "TLSv1.3"),
        ({"cipher_suites": ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)}, "TLSv1.2"),
        ({"cipher_suites": ("TLS_AES_256_GCM_SHA384",)}, "TLSv1.3"),
    ],
)
def test_version_of_tls_follows_the_settings(
    authority: Authority, signed: Signed, settings: dict[str, object], version: str
) -> None:
    end = shake_hands(inline(signed, **settings), trusting(authority))
    assert end.version() == version
    assert end.compression() is None
    if "cipher_suites" in settings:
        cipher = end.cipher()
        assert cipher is not None
        assert cipher[0] in ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_AES_256_GCM_SHA384")


def test_old_versions_and_renegotiation_are_off(signed: Signed) -> None:
    context = server_context(inline(signed)).context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.num_tickets == 0


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "TLSv1.1 is not a version"),
        ({"ssl.protocol": "SSLv3"}, "SSLv3 is not a version"),
        ({"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"}, "leave no version"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "ldaps is not an algorithm"),
        ({"ssl.client.auth": "maybe"}, "must be one of"),
    ],
)
def test_settings_that_contradict_are_refused(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSslError, match=reason):
        client_ssl_config(properties)


@pytest.mark.parametrize(
    "suite",
    ["TLS_DH_anon_WITH_AES_128_CBC_SHA", "TLS_RSA_WITH_NULL_SHA", "ECDHE-NONSENSE", "TLS_A_WITH_B"],
)
def test_insecure_and_unknown_suites_are_refused(signed: Signed, suite: str) -> None:
    with pytest.raises(InvalidSslError, match="is not a secure cipher suite"):
        server_context(inline(signed, cipher_suites=(suite,)))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_names_of_suites_are_those_of_openssl() -> None:
    command = ["openssl", "ciphers", "-stdname", "-s", "-tls1_2", "ALL:!PSK:!SRP:!aNULL:!ARIA"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    pairs = [(line.split()[0], line.split()[2]) for line in lines if line.strip()]
    assert len(pairs) > 30
    assert [(name, openssl_name(name)) for name, _theirs in pairs] == pairs
