"""sasl.jaas.config."""

from __future__ import annotations

import pytest

from penstock.limits import MAX_JAAS_CHARACTERS
from penstock.security.jaas import JaasError, LoginModule, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_users_of_a_server_and_its_own_login() -> None:
    config = parse_jaas(
        f'{PLAIN} required username="broker" password="b\\"; pw" '
        "user_broker='b\"; pw' user_alice=alice-secret /* no */ // comment\n user_x.y='';",
        "PLAIN",
    )
    assert config.module is LoginModule.PLAIN
    assert (config.user, config.password) == ("broker", 'b"; pw')
    assert config.users == {"broker": 'b"; pw', "alice": "alice-secret", "x.y": ""}
    assert not config.is_token


def test_scram_with_a_delegation_token() -> None:
    config = parse_jaas(f'{SCRAM} REQUIRED username="id" password="h" tokenauth="true";', SCRAM_512)
    assert config.is_token
    assert config.user == "id"


SCRAM_512 = "SCRAM-SHA-512"


@pytest.mark.parametrize(
    ("escaped", "value"),
    [(r"a\\b", "a\\b"), (r"a\tb", "a\tb"), (r"\101\60", "A0"), ("ä€", "ä€"), (r"\'", "'")],
)
def test_escapes_of_quoted_values(escaped: str, value: str) -> None:
    assert parse_jaas(f'{PLAIN} required password="{escaped}";', "PLAIN").password == value


@pytest.mark.parametrize(
    "text",
    [
        "com.sun.security.auth.module.JndiLoginModule required user.provider.url=ldap;",
        "com.sun.security.auth.module.LdapLoginModule required;",
        "org.apache.kafka.common.security.plain.PlainLoginModule2 required;",
        "os.system required command='true';",
    ],
)
def test_no_other_login_module_is_allowed(text: str) -> None:
    """CVE-2023-25194: a name is compared, and never loaded."""
    with pytest.raises(JaasError, match="not allowed"):
        parse_jaas(text, "PLAIN")


def test_kerberos_is_refused_with_a_reason() -> None:
    with pytest.raises(JaasError, match="GSSAPI"):
        parse_jaas("com.sun.security.auth.module.Krb5LoginModule required;", "GSSAPI")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not specified"),
        ("  // nothing", "not specified"),
        (";", "not specified"),
        (PLAIN, "control flag not specified"),
        (f"{PLAIN};", "control flag not specified"),
        (f"{PLAIN} maybe;", "Invalid login module control flag"),
        (f"{PLAIN} required", "semi-colon"),
        (f'{PLAIN} required username="secret"', "semi-colon"),
        (f"{PLAIN} required username;", "Value not specified for key number 1"),
        (f"{PLAIN} required username=;", "Value not specified"),
        (f"{PLAIN} required 'secret'=;", "key number 1"),
        (f"{PLAIN} required password=my secret;", "key number 2"),
        (f"{PLAIN} required ==a;", "Value not specified"),
        (f'{PLAIN} required password="secret;', "open quote"),
        (f'{PLAIN} required password="sec\nret";', "open quote"),
        (f"{PLAIN} required password={{secret}};", "unexpected character"),
        (f"{PLAIN} required; {PLAIN} required;", "several login modules"),
        (f"{SCRAM} required;", "not of PLAIN"),
        ("x" * (MAX_JAAS_CHARACTERS + 1), "characters"),
    ],
)
def test_what_is_malformed_is_refused_without_its_secrets(text: str, reason: str) -> None:
    with pytest.raises(JaasError, match=reason) as raised:
        parse_jaas(text, "PLAIN")
    assert "secret" not in str(raised.value)


def test_secrets_are_not_in_the_text_of_a_config() -> None:
    assert "pw" not in repr(parse_jaas(f"{PLAIN} required password=pw;", "PLAIN"))
