"""Principals."""

from __future__ import annotations

from penstock.security.principals import ANONYMOUS, KafkaPrincipal


def test_a_principal_is_written_as_in_acls_and_super_users() -> None:
    assert str(KafkaPrincipal("User", "alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"
