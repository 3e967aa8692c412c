"""Names of principals from client certificates. The cases of rules are Kafka's
SslPrincipalMapperTest; the names were printed by Java's X500Principal.getName."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from penstock.security.distinguished_names import distinguished_name, subject_name
from penstock.security.principal_rules import InvalidRule, NoMatchingRule, PrincipalRules
from tests.tls.certificates import Authority

A = x509.NameAttribute

RULES = ", ".join(
    (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_first_rule_that_matches_applies(name: str, principal: str) -> None:
    assert PrincipalRules(RULES).name(name) == principal


def test_comma_with_white_space_is_a_part_of_a_pattern() -> None:
    rules = PrincipalRules(r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT")
    assert rules.name(r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz") == r"Tkac\, Adam"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "[]"),
        ("DEFAULT", "[DEFAULT]"),
        ("RULE://", "[RULE:/]"),
        ("RULE:/.*/", "[RULE:/.*]"),
        ("RULE:/.*/L", "[RULE:/.*/L]"),
        ("RULE://,DEFAULT", "[RULE:/, DEFAULT]"),
        ("  RULE:// ,  DEFAULT  ", "[RULE:/, DEFAULT]"),
        ("  RULE:   /     / ,  DEFAULT  ", "[RULE:   /     , DEFAULT]"),
        ("  RULE:  /     /U   ,DEFAULT  ", "[RULE:  /     /U, DEFAULT]"),
        (
            "  RULE:([A-Z]*)/$1/U   ,RULE:([a-z]+)/$1/,   DEFAULT  ",
            "[RULE:([A-Z]*)/$1/U, RULE:([a-z]+)/$1, DEFAULT]",
        ),
        (",   , , ,      , , ,   ", "[]"),
        (",,RULE://,,,DEFAULT,,", "[RULE:/, DEFAULT]"),
        (",  , RULE: /   /    ,,,   DEFAULT, ,   ", "[RULE: /   , DEFAULT]"),
        ("     ,  , RULE:   /  /U    ,,  ,DEFAULT, ,", "[RULE:   /  /U, DEFAULT]"),
        (r"RULE:\/\\\(\)\n\t/\/\//", r"[RULE:\/\\\(\)\n\t/\/\/]"),
        (r"RULE:\**\/+/*/L,RULE:\/*\**/**/", r"[RULE:\**\/+/*/L, RULE:\/*\**/**]"),
        (
            r"RULE:,RULE:,/,RULE:,\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,"
            r"RULE:, DEFAULT, /DEFAULT/,DEFAULT",
            r"[RULE:,RULE:,/,RULE:,\//U, RULE:,/RULE:,, RULE:,RULE:,/L,RULE:,/L, "
            r"RULE:, DEFAULT, /DEFAULT, DEFAULT]",
        ),
    ],
)
def test_rules_are_split(text: str, shown: str) -> None:
    assert str(PrincipalRules(text)) == shown


@pytest.mark.parametrize(
    "text",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:(/x/",
        "RULE:CN=(?!a).*/x/",
        "RULE:CN=.*/$1/",
    ],
)
def test_invalid_rules_are_refused(text: str) -> None:
    with pytest.raises(InvalidRule, match="Invalid rule"):
        PrincipalRules(text)


@pytest.mark.parametrize(
    ("rule", "principal"),
    [
        ("RULE:CN=(a)(b)(c)/$1@$4/", "a@$4"),  # no such group: literal
        ("RULE:CN=(a)(b)(c)/$12/", "a2"),
        (r"RULE:CN=(a)(b)(c)/\$1$2/", "$1b"),
        ("RULE:.*/x/", "xx"),  # Java's replaceAll also replaces the empty match at the end
    ],
)
def test_replacement_has_the_syntax_of_java(rule: str, principal: str) -> None:
    assert PrincipalRules(rule).name("CN=abc") == principal


def test_name_that_no_rule_matches_is_refused() -> None:
    with pytest.raises(NoMatchingRule, match=r"no rule .* applies to CN=x"):
        PrincipalRules("RULE:CN=y/y/").name("CN=x")


def test_hostile_name_does_not_cost_exponential_time() -> None:
    rules = PrincipalRules(r"RULE:^CN=((a|a)*)*b$/$1/,DEFAULT")
    name = "CN=" + "a" * 5_000
    assert rules.name(name) == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            [
                [A(NameOID.COUNTRY_NAME, "US")],
                [A(NameOID.ORGANIZATION_NAME, "Org, Inc.")],
                [A(NameOID.ORGANIZATIONAL_UNIT_NAME, 'a+b=c<d>#;"\\')],
                [A(NameOID.COMMON_NAME, " Duke  ")],
            ],
            r"CN=\ Duke\ \ ,OU=a\+b\=c\<d\>\#\;\"\\,O=Org\, Inc.,C=US",
        ),
        (
            [
                [A(NameOID.COMMON_NAME, "Müller ☃ 𝄞")],
                [A(NameOID.EMAIL_ADDRESS, "a@b.c")],
                [A(NameOID.SERIAL_NUMBER, "17")],
                [A(NameOID.USER_ID, "u")],
                [A(NameOID.DOMAIN_COMPONENT, "dc")],
                [A(NameOID.STREET_ADDRESS, "s 1")],
                [A(NameOID.LOCALITY_NAME, "l")],
                [A(NameOID.STATE_OR_PROVINCE_NAME, "st")],
            ],
            "ST=st,L=l,STREET=s 1,DC=dc,UID=u,2.5.4.5=#13023137,"
            "1.2.840.113549.1.9.1=#16056140622e63,CN=Müller ☃ 𝄞",
        ),
        (
            [
                [A(NameOID.COMMON_NAME, "x"), A(NameOID.ORGANIZATIONAL_UNIT_NAME, "y")],
                [A(NameOID.ORGANIZATION_NAME, "#z")],
            ],
            r"O=\#z,CN=x+OU=y",
        ),
        ([[A(NameOID.COMMON_NAME, "a\0b\nc/d*e:f")]], "CN=a\\00b\nc/d*e:f"),
        ([], ""),
    ],
)
def test_name_is_printed_as_java_prints_it(
    name: list[list[x509.NameAttribute[str]]], shown: str
) -> None:
    encoded = x509.Name([x509.RelativeDistinguishedName(element) for element in name])
    assert distinguished_name(encoded.public_bytes()) == shown


def test_text_that_is_not_utf_8_is_hexadecimal() -> None:
    attribute = A(NameOID.COMMON_NAME, "é", _ASN1Type.BMPString)
    assert distinguished_name(x509.Name([attribute]).public_bytes()) == "CN=#1e0200e9"


def test_subject_of_a_certificate_is_found() -> None:
    signed = Authority().sign("Duke")
    found = subject_name(signed.certificate.public_bytes(Encoding.DER))
    assert found == "CN=Duke,OU=ServiceUsers,O=Org,C=US"
    assert PrincipalRules(RULES).name(found) == "duke"


def test_no_prefix_of_a_certificate_is_accepted() -> None:
    encoded = Authority().sign("Duke").certificate.public_bytes(Encoding.DER)
    for length in range(len(encoded)):
        with pytest.raises(ValueError, match=r"DER|tag"):
            subject_name(encoded[:length])
