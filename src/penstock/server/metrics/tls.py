"""What the page of metrics says of TLS listeners."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.metrics.catalogue import tls as names
from penstock.metrics.samples import Samples
from penstock.metrics.turn import Turn
from penstock.security.tls.node import TlsListenerConfig
from penstock.server.tls.handshakes import Handshakes


class TlsSource:
    def __init__(self, listeners: Mapping[str, TlsListenerConfig], *handshakes: Handshakes) -> None:
        self._listeners = listeners
        self._handshakes = handshakes

    async def __call__(self, samples: Samples, _turn: Turn) -> None:
        counters, add = [each.counters for each in self._handshakes], samples.add
        add(names.HANDSHAKES, sum(each.completed for each in counters), "completed")
        add(names.HANDSHAKES, sum(each.failed for each in counters), "failed")
        counts = zip(*(each.counts for each in self._handshakes), strict=True)
        for stage, numbers in zip(("silent", "ready", "running"), counts, strict=True):
            add(names.HANDSHAKES_NOW, sum(numbers), stage)
        for name, listener in self._listeners.items():
            contexts = listener.contexts
            if contexts.certificate is not None:
                add(names.CERTIFICATE_END, contexts.certificate.not_after.timestamp(), name)
            add(names.RELOADS, contexts.reloads, name, "used")
            add(names.RELOADS, contexts.failed_reloads, name, "failed")
