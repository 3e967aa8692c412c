"""Our authorizer decides as Apache Kafka's StandardAuthorizer does, for random entries.

Run by `make test-java`.
"""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

import pytest

from penstock.handlers.authorization.guard import host_of
from penstock.ids import uuid_text
from penstock.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from penstock.security.authorizer import AclChange, Authorizer
from penstock.security.principals import KafkaPrincipal
from tests.java.kafka_jars import compile_java, run_java

pytestmark = pytest.mark.java

# Not `*a`: Kafka 4.3 does not apply entries of the wildcard to longer names that start with it, and
# Penstock does, as Kafka's documentation says.
NAMES = ["a", "ab", "abc", "abcd", "b", "ba", "*", "hardcode", "é", "éa"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "User:root", "Group:alice", "User:a:b"]
HOSTS = ["10.0.0.1", "10.0.0.2", "::1"]
OPERATIONS = [operation for operation in AclOperation if operation > AclOperation.ANY]
TYPES = [ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP]


class Comparison:
    """The commands for Kafka's authorizer, and the answers of ours."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.commands: list[str] = []
        self.answers: list[str] = []
        self.questions: list[str] = []
        self._present: dict[UUID, Acl] = {}
        allow_everyone = bool(seed % 2)
        self._authorizer = Authorizer(["User:root"], allow_everyone=allow_everyone, is_ready=True)
        self._command("new", str(allow_everyone).lower())

    def run(self, rounds: int) -> None:
        for number in range(rounds):
            self._change(UUID(int=(1 << 100) + number))
            for _question in range(12):
                self._ask()
            self._ask_some()
            self._count()

    def _command(self, *words: object) -> None:
        self.commands.append("\t".join(map(str, words)))

    def _question(self, answer: object, *words: object) -> None:
        self._command(*words)
        self.questions.append(self.commands[-1])
        self.answers.append(str(answer).lower())

    def _change(self, key: UUID) -> None:
        rng = self.rng
        if self._present and rng.random() < 0.4:
            key = rng.choice(list(self._present))
            changes: dict[UUID, AclChange] = {key: (self._present.pop(key), None)}
            self._command("remove", uuid_text(key))
        else:
            acl = Acl(
                int(rng.choice(TYPES)),
                rng.choice(NAMES),
                int(rng.choice([PatternType.LITERAL, PatternType.PREFIXED])),
                rng.choice(PRINCIPALS),
                rng.choice(["*", "*", *map(java_host, HOSTS)]),
                int(rng.choice(OPERATIONS)),
                int(rng.choice([PermissionType.ALLOW, PermissionType.ALLOW, PermissionType.DENY])),
            )
            if acl in self._present.values():
                return  # Kafka refuses the same entry with another id.
            self._present[key] = acl
            changes = {key: (None, acl)}
            kind, name, pattern, *rest = acl
            self._command("add", uuid_text(key), kind, name, pattern, *rest)
        for _step in self._authorizer.apply(changes, self._present):
            pass

    def _client(self) -> tuple[KafkaPrincipal, str]:
        principals = [text for text in PRINCIPALS if text != "User:*"]
        kind, _colon, name = self.rng.choice(principals).partition(":")
        return KafkaPrincipal(kind, name), self.rng.choice(HOSTS)

    def _ask(self) -> None:
        principal, host = self._client()
        operation, kind = self.rng.choice(OPERATIONS[1:]), self.rng.choice(TYPES)
        name = self.rng.choice(NAMES)
        allowed = self._authorizer.allows(principal, java_host(host), operation, kind, name)
        self._question(allowed, "ask", principal, host, int(operation), int(kind), name)

    def _ask_some(self) -> None:
        principal, host = self._client()
        operation, kind = self.rng.choice(OPERATIONS[1:]), self.rng.choice(TYPES)
        allowed = self._authorizer.allows_some(principal, java_host(host), operation, kind)
        self._question(allowed, "some", principal, host, int(operation), int(kind))

    def _count(self) -> None:
        rng = self.rng
        acl_filter = AclFilter(
            rng.choice([ResourceType.ANY, *TYPES]),
            rng.choice([None, *NAMES]),
            rng.choice([each for each in PatternType if each]),
            rng.choice([None, None, *PRINCIPALS]),
            rng.choice([None, None, "*", *map(java_host, HOSTS)]),
            rng.choice([AclOperation.ANY, AclOperation.ANY, *OPERATIONS]),
            rng.choice([PermissionType.ANY, PermissionType.ALLOW, PermissionType.DENY]),
        )
        count = sum(map(acl_filter.matches, self._present.values()))
        words = ["-" if value is None else value for value in acl_filter]
        numbers = [int(word) if isinstance(word, int) else word for word in words]
        self._question(count, "count", *numbers)


def java_host(host: str) -> str:
    return host_of(f"{host}:1")


def test_decisions_and_filters_are_those_of_kafka(tmp_path: Path) -> None:
    commands: list[str] = []
    answers: list[str] = []
    questions: list[str] = []
    for seed in range(40):
        comparison = Comparison(seed)
        comparison.run(rounds=100)
        commands += comparison.commands
        answers += comparison.answers
        questions += comparison.questions
    file = tmp_path / "commands"
    file.write_text("\n".join(commands) + "\n", encoding="utf-8")
    printed = run_java("Authorize", str(file), classes=compile_java("Authorize"))
    kafka = [line for line in printed.splitlines() if line in ("true", "false") or line.isdigit()]
    assert len(kafka) == len(questions)
    different = [
        (question, ours, theirs)
        for question, ours, theirs in zip(questions, answers, kafka, strict=True)
        if ours != theirs
    ]
    assert different == []
    assert 0.1 < answers.count("true") / len(answers) < 0.9, "both answers are common"
