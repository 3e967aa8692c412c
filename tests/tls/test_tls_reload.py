"""Certificates that change while a node runs, and settings with which it does not start."""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.config.ssl_settings import SslConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.metrics.samples import Samples
from penstock.metrics.turn import Turn
from penstock.security.tls import context as tls_context
from penstock.security.tls import reload
from penstock.security.tls.node import NodeTls
from penstock.server.metrics.tls import TlsSource
from penstock.world import World
from penstock.world.real import real_world
from tests.server.serving import heartbeat, respond_now
from tests.server.test_server_order import until
from tests.tls.certificates import DAY, Authority
from tests.tls.tls_serving import (
    ServedTls,
    context_of,
    play,
    refused,
    serving_tls,
    tls_config,
)


def test_new_certificate_serves_new_connections_and_a_broken_one_none(
    loop: str,
    authority: Authority,
    settings: dict[str, str],
    trusting: ssl.SSLContext,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    path = Path(settings["ssl.keystore.location"])

    async def serial(served: ServedTls) -> int:
        client = await served.connect(trusting)
        found = client.transport.get_extra_info("ssl_object").getpeercert()
        client.transport.close()
        return int(found["serialNumber"], 16)

    async def scenario(world: World) -> None:
        async with serving_tls(world, respond_now, settings) as served:
            config = served.server._config
            before = await serial(served)
            early = await served.connect(trusting)
            renewed = authority.sign("node", ["localhost"])
            renewed.write_pem(path)
            await served.tls.update(config)
            assert await serial(served) == renewed.certificate.serial_number != before
            for broken, reason in (
                (lambda: path.write_text("nonsense"), "is not in PEM format"),
                (lambda: path.unlink(), "No such file"),
                (
                    lambda: authority.sign("other", ["localhost"]).write_pem(path),
                    "ssl.allow.dn.changes=true",
                ),
                (
                    lambda: authority.sign("node", ["elsewhere"]).write_pem(path),
                    "ssl.allow.san.changes=true",
                ),
                (
                    lambda: authority.sign("node", ["localhost"], end=-DAY / 2).write_pem(path),
                    "expired",
                ),
            ):
                broken()
                caplog.clear()
                await served.tls.update(config)
                await served.tls.update(config)
                errors = [r for r in caplog.records if r.levelno == logging.ERROR]
                assert len(errors) == 2, "one of the listener, one of the links, each once"
                assert reason in caplog.text
                assert await serial(served) == renewed.certificate.serial_number
            early.send(heartbeat(1))
            assert await early.wait_responses(1) == [1]

    play(loop, scenario)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("ssl.keystore.location", "/no/such/file", "ssl.keystore.location: cannot read"),
        ("ssl.keystore.type", "PKCS12", "ssl.keystore.type: .* is in PEM format"),
        ("ssl.truststore.location", "/no/file", "ssl.truststore.location: cannot read"),
        ("ssl.principal.mapping.rules", "default", "ssl.principal.mapping.rules: Invalid rule"),
        ("ssl.cipher.suites", "TLS_RSA_WITH_NULL_SHA", "ssl.cipher.suites: TLS_RSA_WITH_NULL_SHA"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "listener.name.ssl."])
def test_node_does_not_start_with_unusable_settings(
    settings: dict[str, str], name: str, value: str, reason: str, prefix: str
) -> None:
    config = tls_config({**settings, "ssl.client.auth": "required", prefix + name: value})
    with pytest.raises(KafkaError, match=f"{prefix}{reason}") as error:
        NodeTls(real_world(), config)
    assert error.value.code is ErrorCode.INVALID_CONFIG


def test_keys_may_be_in_the_properties_of_the_node(authority: Authority) -> None:
    signed = authority.sign("node", ["localhost"])
    tls = NodeTls(
        real_world(),
        tls_config(
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": signed.key_pem().replace("\n", "\\n\\\n"),
                "ssl.keystore.certificate.chain": signed.chain_pem.replace("\n", "\\n\\\n"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": authority.pem.replace("\n", " "),
            }
        ),
    )
    certificate = tls.listeners["SSL"].contexts.certificate
    assert certificate is not None
    assert "CN=node" in certificate.subject


def test_metrics_tell_of_handshakes_certificates_and_reloads(
    settings: dict[str, str], trusting: ssl.SSLContext
) -> None:
    async def scenario(world: World) -> str:
        async with serving_tls(world, respond_now, settings) as served:
            await served.connect(trusting)
            await refused(served, context_of(Authority("Other")))
            await until(lambda: served.server.handshakes.counters.failed)
            Path(settings["ssl.keystore.location"]).write_text("nonsense")
            await served.tls.update(served.server._config)
            samples = Samples()
            await TlsSource(served.server.tls, served.server.handshakes)(samples, Turn(world.clock))
            return "".join(line for lines in samples.lines.values() for line in lines)

    page = play("uvloop", scenario)
    for line in (
        'penstock_tls_handshakes_total{outcome="completed"} 1',
        'penstock_tls_handshakes_total{outcome="failed"} 1',
        'penstock_tls_handshakes_unfinished{stage="running"} 0',
        'penstock_tls_certificate_not_after_seconds{listener="SSL"} ',
        'penstock_tls_reloads_total{listener="SSL",outcome="failed"} 1',
    ):
        assert line in page


def test_settings_never_show_keys() -> None:
    config = SslConfig(keystore_key="k3y", key_password="pw1", keystore_password="pw2")
    assert not any(secret in repr(config) for secret in ("k3y", "pw1", "pw2"))


def test_certificate_that_is_not_valid_yet_is_tried_again(
    loop: str, authority: Authority, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The clock of the authority may be ahead."""
    path = Path(settings["ssl.keystore.location"])
    soon = datetime.timedelta(seconds=1.5)

    async def scenario(world: World) -> None:
        async with serving_tls(world, respond_now, settings) as served:
            config = served.server._config
            authority.sign("node", ["localhost"], start=soon).write_pem(path)
            await served.tls.update(config)
            assert "is not valid before" in caplog.text
            caplog.clear()
            (contexts,) = (each.contexts for each in served.tls.listeners.values())
            before = contexts.reloads
            while contexts.reloads == before:
                lines = [each for each in caplog.records if each.name == reload.__name__]
                assert not lines, "the same reason is logged once"
                await asyncio.sleep(0.1)
                await served.tls.update(config)

    play(loop, scenario)


class Tomorrow(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Tomorrow:
        return cls.fromtimestamp(time.time() + 2 * DAY.total_seconds(), tz)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_trust_store_is_followed_while_the_certificate_has_expired(
    authority: Authority,
    settings: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_replaced: bool,
) -> None:
    """An authority that is not trusted any more must not be trusted until somebody renews the
    certificate of the node. `is_replaced`: by another one that has expired."""
    key_store, trust_store = tmp_path / "short.pem", tmp_path / "ca.pem"
    authority.sign("node", ["localhost"], end=DAY).write_pem(key_store)
    values = {
        **settings,
        "ssl.client.auth": "required",
        "ssl.keystore.location": str(key_store),
        "ssl.truststore.location": authority.write_pem(trust_store),
    }
    config = tls_config(values)

    async def scenario(world: World) -> None:
        tls = NodeTls(world, config)
        (contexts,) = (each.contexts for each in tls.listeners.values())
        certificate = contexts.certificate
        assert certificate is not None
        later = SimpleNamespace(datetime=Tomorrow, UTC=datetime.UTC)
        monkeypatch.setattr(tls_context, "datetime", later)
        if is_replaced:
            authority.sign("node", ["localhost"], end=-DAY / 2).write_pem(key_store)
        other = Authority("Other CA")
        other.write_pem(trust_store)
        before = contexts.context()
        await tls.update(config)
        assert contexts.context() is not before
        (trusted,) = contexts.context().get_ca_certs()
        assert "Other CA" in str(trusted["subject"])
        assert contexts.certificate == certificate
        followed = contexts.context()
        await tls.update(config)
        assert contexts.context() is followed, "the same trust store is loaded once"
        renewed = authority.sign("node", ["localhost"])
        renewed.write_pem(key_store)
        await tls.update(config)
        assert contexts.certificate != certificate
        (trusted,) = contexts.context().get_ca_certs()
        assert "Other CA" in str(trusted["subject"])

    play("uvloop", scenario)
