"""The secrets of a secure cluster's directory: made once, renewed when due, never shown."""

from __future__ import annotations

import datetime
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from penstock.cli.cluster import directory as directories
from penstock.cli.cluster.directory import DirectoryError, local_servers
from penstock.cli.cluster.layout import LayoutError, replace_file
from penstock.cli.cluster.securing import open_secrets, secured_settings, write_client_files
from penstock.client.servers import security_of
from penstock.config.properties import decode_properties
from penstock.security.acls import AclOperation, ResourceType
from penstock.security.setup.authority import NODE_LIFETIME, Authority, end_of
from penstock.security.setup.cluster import ClusterSecrets, SecretsError, first_acls

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def test_an_authority_signs_certificates_for_servers_and_clients() -> None:
    authority = Authority.create("CA", NOW)
    pem = authority.issue("node", ["localhost", "127.0.0.1", "::1"], NOW)
    certificate, issuer = x509.load_pem_x509_certificates(pem)
    certificate.verify_directly_issued_by(issuer)
    assert issuer == x509.load_pem_x509_certificate(authority.certificate_pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    constraints = x509.BasicConstraints
    assert not certificate.extensions.get_extension_for_class(constraints).value.ca
    assert issuer.extensions.get_extension_for_class(constraints).value.ca
    assert end_of(pem) == NOW + NODE_LIFETIME
    again = Authority.load(authority.key_pem, authority.certificate_pem)
    assert again.certificate_pem == authority.certificate_pem
    with pytest.raises(ValueError, match="do not belong together"):
        Authority.load(Authority.create("other", NOW).key_pem, authority.certificate_pem)


def test_secrets_are_made_once_and_not_shown(tmp_path: Path) -> None:
    assert open_secrets(tmp_path, is_new=True, wanted=False) is None
    made = open_secrets(tmp_path, is_new=True, wanted=True)
    found = open_secrets(tmp_path, is_new=False, wanted=False)
    assert made is not None
    assert found is not None
    passwords = (made.node_password, made.admin_password, made.metrics_token)
    assert passwords == (found.node_password, found.admin_password, found.metrics_token)
    assert len(set(passwords)) == 3
    for text in (repr(made), repr(made.client_access("a:1")), str(made)):
        assert not [password for password in passwords if password in text]
    with pytest.raises(LayoutError, match="created without --secure"):
        open_secrets(tmp_path / "other", is_new=False, wanted=True)
    (tmp_path / "ca.key").write_text("damaged")
    with pytest.raises(SecretsError, match="Restore them"):
        ClusterSecrets.load(tmp_path)


def test_a_certificate_is_renewed_when_it_is_about_to_expire(tmp_path: Path) -> None:
    secrets = ClusterSecrets.create(tmp_path)
    home = tmp_path / "1"
    settings = secured_settings(secrets, home, 1)
    file = home / "node.pem"
    assert settings["ssl.keystore.location"] == str(file)
    first = file.read_bytes()
    assert secured_settings(secrets, home, 1) == settings
    assert file.read_bytes() == first
    old = secrets.authority.issue("node", ["localhost"], NOW - datetime.timedelta(days=380))
    replace_file(file, old.decode())
    secured_settings(secrets, home, 1)
    assert end_of(file.read_bytes()) > NOW + datetime.timedelta(days=390)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secured_settings(None, tmp_path / "2", 2) == {}


def test_the_first_user_may_do_everything_by_entries() -> None:
    acls = first_acls()
    assert {acl.resource_type for acl in acls} == set(ResourceType) - {0, 1}
    assert {acl.operation for acl in acls} == {AclOperation.ALL}
    assert {acl.principal for acl in acls} == {"User:admin"}


def test_a_directory_gives_its_brokers_and_its_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_servers(None, None) is None
    with pytest.raises(DirectoryError, match="has no cluster"):
        local_servers(tmp_path, None)
    data = tmp_path / "penstock-data"
    data.mkdir()
    secrets = ClusterSecrets.create(data)
    files = write_client_files(data, secrets, "a:1,b:2")
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    for servers in (local_servers(None, None), local_servers(data, None)):
        assert servers == "a:1,b:2"
        assert security_of(servers)["security.protocol"] == "SASL_SSL"
    named = local_servers(data, "c:3")
    assert named == "c:3"
    assert security_of(named)["sasl.mechanism"] == "SCRAM-SHA-512"
    # The default directory is for commands without any other address.
    assert local_servers(None, "c:3") is None
    assert Path("penstock-data") == directories.DEFAULT_DIRECTORY


def test_files_for_java_survive_unusual_paths(tmp_path: Path) -> None:
    directory = tmp_path / "Zoë's \\ data 😀"
    directory.mkdir()
    secrets = ClusterSecrets.create(directory)
    java, librdkafka = write_client_files(directory, secrets, "a:1")
    assert java.read_bytes().isascii()
    entries = decode_properties(java.read_bytes(), "client.properties").entries
    assert entries["ssl.truststore.location"].value == str(directory / "ca.pem")
    assert f"ssl.ca.location={directory / 'ca.pem'}\n" in librdkafka.read_text()
