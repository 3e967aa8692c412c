"""A node in a process of its own with a listener of each security protocol, and connections that
send it what no client would.

CLIENTS is SASL_PLAINTEXT, SECURE is SASL_SSL, MUTUAL is SSL with client certificates, PLAINTEXT is
for administration, and CONTROLLER is SASL_PLAINTEXT. The user alice has a password or a token for
each mechanism, and no rights but those that a test gives her.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from penstock.config.authorizer_settings import STANDARD_AUTHORIZER
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.e2e.raw_connection import RawConnection
from tests.security.fuzzed_exchanges import Targets
from tests.security.node_processes import HOST, NodeCluster, NodeProcess, running
from tests.security.secured_cluster import PLAIN_MODULE, token_of
from tests.tls.certificates import Authority

LISTENERS = ("CLIENTS", "SECURE", "MUTUAL", "PLAINTEXT", "CONTROLLER")
PLAIN_PASSWORD, SCRAM_PASSWORD = "plain-secret", "scram-secret"
USERS = f'user_node="node-secret" user_alice="{PLAIN_PASSWORD}" user_bob="bob-secret"'
LOGIN = f'{PLAIN_MODULE} username="node" password="node-secret" {USERS};'
MEGABYTE = 1024 * 1024


class Connection(RawConnection):
    """A connection to a SASL listener that may authenticate."""

    def handshake(self, mechanism: str) -> int:
        request = SaslHandshakeRequest(mechanism=mechanism)
        return self.request(request, 1, SaslHandshakeResponse).error_code

    def token(self, token: bytes) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(auth_bytes=token)
        return self.request(request, 2, SaslAuthenticateResponse)

    def log_in(self, user: str, password: str) -> None:
        assert self.handshake("PLAIN") == 0
        answer = self.token(f"\0{user}\0{password}".encode())
        assert answer.error_code == 0, answer


class AttackedNode:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority()
        self.ca = self.authority.write_pem(directory / "ca.pem")
        self.signer = rsa.generate_private_key(65_537, 2_048)
        keys = directory / "keys.json"
        jwk = RSAAlgorithm.to_jwk(self.signer.public_key(), as_dict=True)
        keys.write_text(json.dumps({"keys": [jwk]}))
        node = self.authority.sign("node", ["localhost", HOST]).write_pem(directory / "node.pem")
        settings = {
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,SECURE:SASL_SSL,MUTUAL:SSL,"
            "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "connection.failed.authentication.delay.ms": "0",
            "listener.name.clients.plain.sasl.jaas.config": LOGIN,
            "listener.name.secure.plain.sasl.jaas.config": LOGIN,
            "listener.name.controller.plain.sasl.jaas.config": LOGIN,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
            "penstock.sasl.oauthbearer.allowed.urls": keys.as_uri(),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": node,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "listener.name.mutual.ssl.client.auth": "required",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS;User:node",
        }
        scram = [f"SCRAM-SHA-{bits}=[name=alice,password={SCRAM_PASSWORD}]" for bits in (256, 512)]
        self.cluster = NodeCluster(directory, settings, LISTENERS, nodes=1, scram=scram)

    @property
    def process(self) -> NodeProcess:
        return self.cluster.nodes[0]

    def port(self, listener: str) -> int:
        return self.cluster.ports[0][listener]

    def connect(self, listener: str = "CLIENTS") -> Connection:
        return Connection(self.cluster.servers(listener))

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.cluster.servers("PLAINTEXT")})

    def create_topic(self, name: str, **configs: str) -> None:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, 1, 1, config=settings)
        self.admin.create_topics([topic])[name].result(30)

    def token(self, **claims: object) -> str:
        return token_of(self.signer, **claims)

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority.pem)

    def targets(self) -> Targets:
        """Return what tests.security.fuzzed_exchanges attacks."""
        secrets = {
            "PLAIN": PLAIN_PASSWORD,
            "SCRAM-SHA-256": SCRAM_PASSWORD,
            "SCRAM-SHA-512": SCRAM_PASSWORD,
            "OAUTHBEARER": self.token(exp=int(time.time()) + 86_400),
        }
        return Targets(
            sasl=self.port("CLIENTS"),
            sasl_ssl=self.port("SECURE"),
            mutual=self.port("MUTUAL"),
            controller=self.port("CONTROLLER"),
            trust=self.trust,
            secrets=secrets,
        )


@contextmanager
def attacked_node(directory: Path) -> Iterator[AttackedNode]:
    node = AttackedNode(directory)
    with running(node.cluster):
        yield node
