"""Scrapes a page of metrics over a socket, and parses it with prometheus-client's parser."""

from __future__ import annotations

import asyncio
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

# (name of the sample, its labels in alphabetical order) -> value
Page = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Page:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(page: Page, name: str, **labels: str) -> float:
    """Return the sum of the samples of a name that have these labels."""
    wanted = set(labels.items())
    found = [
        number for (each, pairs), number in page.items() if each == name and wanted <= {*pairs}
    ]
    assert found, f"no sample {name}{labels}"
    return sum(found)


def scrape(address: str, query: str = "") -> Page:
    """Scrape a node at host:port."""
    with urlopen(f"http://{address}/metrics{query}", timeout=20) as response:
        return parsed(response.read().decode())


async def request(port: int, data: bytes) -> bytes:
    """Send bytes to a local port, and return everything that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


async def get(port: int, target: str = "/metrics", *headers: str) -> tuple[int, str]:
    """Return the status and the body of a GET."""
    lines = [f"GET {target} HTTP/1.1", "Host: localhost", *headers, "", ""]
    head, _empty, body = (await request(port, "\r\n".join(lines).encode())).partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body.decode()
