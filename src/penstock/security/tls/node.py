"""The TLS of a node: contexts of its listeners, and of its links to controllers and brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from penstock.config.listeners import SecurityProtocol, listener_setting, security_protocols
from penstock.config.metrics_settings import METRICS_TLS_NAME, metrics_has_tls
from penstock.config.node import NodeConfig
from penstock.config.setting import Values
from penstock.config.ssl_settings import (
    SSL_PRINCIPAL_MAPPING_RULES,
    InvalidSslError,
    listener_ssl_config,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import TLS_RELOAD_S
from penstock.security.distinguished_names import subject_name
from penstock.security.principal_rules import InvalidRule, PrincipalRules
from penstock.security.principals import ANONYMOUS, USER, KafkaPrincipal
from penstock.security.tls.context import client_context, server_context
from penstock.security.tls.network import with_tls
from penstock.security.tls.reload import BuildContext, ReloadedContext
from penstock.world import World


@dataclass(frozen=True, slots=True)
class TlsListenerConfig:
    """`authenticates` is False for SASL_SSL, where SASL says who the client is."""

    contexts: ReloadedContext
    rules: PrincipalRules
    authenticates: bool

    def principal(self, certificate: bytes | None) -> KafkaPrincipal:
        """Return the principal of a client with this certificate in DER. Raises ValueError if no
        rule applies to its name."""
        if certificate is None:
            return ANONYMOUS
        return KafkaPrincipal(USER, self.rules.name(subject_name(certificate)))


class NodeTls:
    """Reads keys and certificates. Raises KafkaError INVALID_CONFIG that names the setting."""

    def __init__(self, world: World, config: NodeConfig) -> None:
        self._world = world
        self._config = config
        self._protocols = security_protocols(config)
        self.listeners: Mapping[str, TlsListenerConfig] = {
            listener.name: self._listener(listener.name, listener.security_protocol)
            for listener in config.listeners
            if listener.security_protocol.is_tls
        }
        names = [config.inter_broker_listener_name, *config.controller_listener_names[:1]]
        self._links = {
            name: self._contexts(f"links to {name}", name, client_context)
            for name in names
            if self._protocol(name).is_tls
        }
        # Of the page of metrics; None if that has no TLS.
        self.metrics: ReloadedContext | None = None
        if metrics_has_tls(config):
            self.metrics = self._contexts("metrics", METRICS_TLS_NAME, server_context)

    def link_world(self, listener_name: str) -> World:
        """Return the world in which this node connects to a listener of other nodes."""
        contexts = self._links.get(listener_name)
        return self._world if contexts is None else with_tls(self._world, contexts.context)

    @property
    def is_used(self) -> bool:
        return bool(self.listeners or self._links or self.metrics)

    @property
    def contexts(self) -> Mapping[str, ReloadedContext]:
        """The contexts of the listeners, for metrics."""
        return {name: listener.contexts for name, listener in self.listeners.items()}

    async def follow(self, settings: Callable[[], Values]) -> NoReturn:
        """Follow the settings of now and the files."""
        while True:
            await asyncio.sleep(TLS_RELOAD_S)
            await self.update(settings())

    async def update(self, values: Values) -> None:
        """Look at the settings and files once."""
        pages = [] if self.metrics is None else [(METRICS_TLS_NAME, self.metrics)]
        for name, contexts in (*self.contexts.items(), *self._links.items(), *pages):
            try:
                config = listener_ssl_config(values, name, self._protocol(name))
            except InvalidSslError:
                continue  # another release accepted it, as an invalid value of any other setting
            await self._world.offload.thread(contexts.update, config)

    def _protocol(self, name: str) -> SecurityProtocol:
        if name == METRICS_TLS_NAME:
            return SecurityProtocol.SSL
        return self._protocols.get(name, SecurityProtocol.PLAINTEXT)

    def _listener(self, name: str, protocol: SecurityProtocol) -> TlsListenerConfig:
        contexts = self._contexts(f"listener {name}", name, server_context)
        text = listener_ssl_config(self._config, name, protocol).principal_mapping_rules
        try:
            rules = PrincipalRules(text)
        except InvalidRule as error:
            own = listener_setting(name, SSL_PRINCIPAL_MAPPING_RULES)
            setting = own if self._config.is_set(own) else SSL_PRINCIPAL_MAPPING_RULES
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{setting.name}: {error}") from error
        return TlsListenerConfig(contexts, rules, not protocol.is_sasl)

    def _contexts(self, text: str, name: str, build: BuildContext) -> ReloadedContext:
        try:
            config = listener_ssl_config(self._config, name, self._protocol(name))
            return ReloadedContext(text, build, config)
        except InvalidSslError as error:
            own = listener_setting(name, error.setting)
            setting = own if self._config.is_set(own) else error.setting
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{text}: {setting.name}: {error.reason}"
            ) from error
