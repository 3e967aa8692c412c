"""Three brokers in processes of their own whose every link is encrypted and authenticated, and the
logins of clients that others wrote.

Each of AUTHENTICATIONS makes a client the principal User:alice. Listeners: CLIENTS is SASL_SSL with
SCRAM-SHA-512, PLAIN and OAUTHBEARER; MUTUAL is SSL with client certificates; brokers use INTERNAL,
SASL_SSL with SCRAM-SHA-512; controllers use CONTROLLER, SASL_SSL with PLAIN. Only node and alice
may do anything, so a client with another principal fails.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiokafka.abc
import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from kafka.net.sasl.oauth import AbstractTokenProvider

from penstock.config.authorizer_settings import STANDARD_AUTHORIZER
from tests.security.node_processes import NodeCluster, running
from tests.tls.certificates import Authority

SCRAM, PLAIN, OAUTHBEARER, MUTUAL_TLS = "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "mutual TLS"
AUTHENTICATIONS = (SCRAM, PLAIN, OAUTHBEARER, MUTUAL_TLS)
PASSWORDS = {SCRAM: "scram-secret", PLAIN: "plain-secret"}
LISTENERS = ("CLIENTS", "MUTUAL", "INTERNAL", "CONTROLLER")
PACKAGE = "org.apache.kafka.common.security"
PLAIN_MODULE = f"{PACKAGE}.plain.PlainLoginModule required"
SCRAM_MODULE = f"{PACKAGE}.scram.ScramLoginModule required"
NODE_LOGIN = 'username="node" password="node-secret"'


def token_of(key: rsa.RSAPrivateKey, **claims: object) -> str:
    now = int(time.time())
    given = {"sub": "alice", "aud": "kafka", "iat": now, "exp": now + 3600, **claims}
    return jwt.encode(given, key, algorithm="RS256")


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """kafka-python's source of tokens."""

    def __init__(self, text: str) -> None:
        self._text = text

    def token(self) -> str:
        return self._text


class AsyncTokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    """aiokafka's source of tokens."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self) -> str:
        return self._text


class SecuredCluster:
    """`ca` and `user` are files: the authority's certificate, and alice's key and certificate."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority()
        self.ca = self.authority.write_pem(directory / "ca.pem")
        self.user = self.authority.sign("alice").write_pem(directory / "alice.pem")
        self.signer = rsa.generate_private_key(65_537, 2_048)
        keys = directory / "keys.json"
        jwk = RSAAlgorithm.to_jwk(self.signer.public_key(), as_dict=True)
        keys.write_text(json.dumps({"keys": [jwk]}))
        node = self.authority.sign("node", ["localhost", "127.0.0.1"])
        settings = {
            "listener.security.protocol.map": (
                "CLIENTS:SASL_SSL,MUTUAL:SSL,INTERNAL:SASL_SSL,CONTROLLER:SASL_SSL"
            ),
            "inter.broker.listener.name": "INTERNAL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": node.write_pem(directory / "node.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L",
            "listener.name.clients.sasl.enabled.mechanisms": f"{SCRAM},{PLAIN},{OAUTHBEARER}",
            "listener.name.internal.sasl.enabled.mechanisms": SCRAM,
            "listener.name.controller.sasl.enabled.mechanisms": PLAIN,
            "sasl.mechanism.inter.broker.protocol": SCRAM,
            "sasl.mechanism.controller.protocol": PLAIN,
            "listener.name.clients.plain.sasl.jaas.config": (
                f'{PLAIN_MODULE} user_alice="{PASSWORDS[PLAIN]}";'
            ),
            "listener.name.internal.scram-sha-512.sasl.jaas.config": (
                f"{SCRAM_MODULE} {NODE_LOGIN};"
            ),
            "listener.name.controller.plain.sasl.jaas.config": (
                f'{PLAIN_MODULE} {NODE_LOGIN} user_node="node-secret";'
            ),
            "listener.name.clients.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "listener.name.clients.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
            "penstock.sasl.oauthbearer.allowed.urls": keys.as_uri(),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:node;User:alice",
        }
        scram = [f"{SCRAM}=[name=node,password=node-secret]"]
        scram += [f"{SCRAM}=[name=alice,password={PASSWORDS[SCRAM]}]"]
        self.nodes = NodeCluster(directory, settings, LISTENERS, scram=scram)

    def token(self, **claims: object) -> str:
        return token_of(self.signer, **claims)

    def servers(self, authentication: str) -> str:
        return self.nodes.servers("MUTUAL" if authentication == MUTUAL_TLS else "CLIENTS")

    def librdkafka(self, authentication: str) -> dict[str, Any]:
        login: dict[str, Any] = {
            "bootstrap.servers": self.servers(authentication),
            "ssl.ca.location": self.ca,
        }
        if authentication == MUTUAL_TLS:
            files = {"ssl.certificate.location": self.user, "ssl.key.location": self.user}
            return login | {"security.protocol": "SSL"} | files
        login |= {"security.protocol": "SASL_SSL", "sasl.mechanism": authentication}
        if authentication == OAUTHBEARER:
            return login | {"oauth_cb": lambda _config: (self.token(), time.time() + 3600)}
        return login | {"sasl.username": "alice", "sasl.password": PASSWORDS[authentication]}

    def python(self, authentication: str, *, is_async: bool = False) -> dict[str, Any]:
        """Return the settings of kafka-python, or of aiokafka."""
        context = ssl.create_default_context(cafile=self.ca)
        login: dict[str, Any] = {
            "bootstrap_servers": self.servers(authentication).split(","),
            "ssl_context": context,
        }
        if authentication == MUTUAL_TLS:
            context.load_cert_chain(self.user)
            return login | {"security_protocol": "SSL"}
        login |= {"security_protocol": "SASL_SSL", "sasl_mechanism": authentication}
        if authentication == OAUTHBEARER:
            tokens = AsyncTokens if is_async else Tokens
            return login | {"sasl_oauth_token_provider": tokens(self.token())}
        password = PASSWORDS[authentication]
        return login | {"sasl_plain_username": "alice", "sasl_plain_password": password}

    def java(self, authentication: str) -> dict[str, str]:
        """Return the properties of Kafka's own clients and commands."""
        login = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
        if authentication == MUTUAL_TLS:
            store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.user}
            return login | {"security.protocol": "SSL"} | store
        login |= {"security.protocol": "SASL_SSL", "sasl.mechanism": authentication}
        if authentication == OAUTHBEARER:
            token = self.directory / "token"
            token.write_text(self.token(scope="kafka"))
            oauth = f"{PACKAGE}.oauthbearer"
            return login | {
                "sasl.jaas.config": f"{oauth}.OAuthBearerLoginModule required;",
                "sasl.login.callback.handler.class": f"{oauth}.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
            }
        module = PLAIN_MODULE if authentication == PLAIN else SCRAM_MODULE
        user = f'username="alice" password="{PASSWORDS[authentication]}"'
        return login | {"sasl.jaas.config": f"{module} {user};"}


@contextmanager
def secured_cluster(directory: Path) -> Iterator[SecuredCluster]:
    cluster = SecuredCluster(directory)
    with running(cluster.nodes):
        yield cluster
