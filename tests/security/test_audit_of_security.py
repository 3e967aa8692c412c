"""`penstock.audit` has a line with principal and address for a failed authentication, a denied
request, and each change of entries, users and settings; none has a secret."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

import penstock
from penstock.server.rare_lines import RareLines


def wait_for(lines: Any, *texts: str) -> str:
    """Return the audit line that has all texts."""
    deadline = time.monotonic() + 60
    while True:
        found = [line for line in lines() if all(text in line for text in texts)]
        if found:
            assert len(found) == 1, found
            line: str = found[0]
            return line
        assert time.monotonic() < deadline, (texts, lines())
        time.sleep(0.02)


def test_each_refusal_and_each_change_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.audit")

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "penstock.audit"]

    with penstock.Cluster(secure=True) as cluster:
        access = cluster.access.librdkafka()
        admin = AdminClient(access)
        mechanism = ScramMechanism.SCRAM_SHA_512
        upsertion = UserScramCredentialUpsertion(
            "mallory", ScramCredentialInfo(mechanism, 4096), b"m-secret"
        )
        for change in (upsertion, UserScramCredentialDeletion("nobody", mechanism)):
            (future,) = admin.alter_user_scram_credentials([change]).values()
            try:
                future.result(30)
            except KafkaException:
                assert change is not upsertion
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        entry = ConfigEntry(
            "retention.ms", "123456789", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[entry])
        (altered,) = admin.incremental_alter_configs([resource]).values()
        altered.result(30)
        acl = AclBinding(
            ResourceType.TOPIC,
            "t",
            ResourcePatternType.LITERAL,
            "User:carol",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        (created,) = admin.create_acls([acl]).values()
        created.result(30)
        acl_filter = AclBindingFilter(
            ResourceType.TOPIC,
            "t",
            ResourcePatternType.LITERAL,
            "User:carol",
            "*",
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        (deleted,) = admin.delete_acls([acl_filter]).values()
        assert len(deleted.result(30)) == 1

        mallory = {**access, "sasl.username": "mallory", "sasl.password": "m-secret"}
        denied = Producer({**mallory, "message.timeout.ms": 20_000, "log_level": 0})
        denied.produce("t", b"1")
        denied.flush(60)
        wrong = Producer({**mallory, "sasl.password": "guess", "log_level": 0})
        refused = ("127.0.0.1", "authentication failed", "SCRAM-SHA-512", "'mallory'")
        wait_for(lines, *refused)
        wrong.flush(0)

        by_admin = "('User:admin') at 127.0.0.1:"
        wait_for(lines, "AlterUserScramCredentials", by_admin, "'mallory'", "done")
        wait_for(lines, "AlterUserScramCredentials", by_admin, "'nobody'", "RESOURCE_NOT_FOUND")
        wait_for(lines, "IncrementalAlterConfigs", by_admin, "'t'", "'retention.ms'", "done")
        wait_for(lines, "CreateAcls", by_admin, "User:carol", "READ", "done")
        wait_for(lines, "DeleteAcls", by_admin, "User:carol", "done")
        first = next(line for line in lines() if ": denied, since 'User:mallory'" in line)
        assert "at 127.0.0.1:" in first
        text = "\n".join(record.getMessage() for record in caplog.records)
        for secret in ("m-secret", "guess", "123456789", access["sasl.password"]):
            assert secret not in text


def test_lines_of_refused_peers_are_bounded() -> None:
    lines = RareLines()
    assert lines.note("a", "r", 100.0) == ""
    assert lines.note("a", "r", 101.0) is None
    notes = [lines.note(f"{number}", "r", 102.0) for number in range(1_000)]
    assert [note for note in notes if note is not None] == [
        ". 1 other failures were not logged",
        "",
        "",
        "",
        "",
    ]
    assert lines.note("a", "r", 200.0) == ". 995 other failures were not logged"
