"""The order in which a committed metadata change reaches the parts of a node."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from penstock.node.node import Node


def test_acls_and_quotas_are_applied_before_the_image_is_visible() -> None:
    """CreateAcls, DeleteAcls and AlterClientQuotas wait for the image. Their client may rely on the
    entries and the quotas then."""
    seen: list[str] = []

    def index(_changes: object, _acls: object) -> Iterator[None]:
        yield
        seen.append("authorizer")

    def part(name: str) -> Any:
        def apply(_image: object, _delta: object) -> tuple[()]:
            seen.append(name)
            return ()

        return SimpleNamespace(apply=apply, notify=lambda: None)

    node: Any = SimpleNamespace(
        authorizer=SimpleNamespace(apply=index),
        registration=SimpleNamespace(is_in=lambda _image: False),
        **{
            name: part(name)
            for name in (
                "metadata",
                "quotas",
                "verifier",
                "replicas",
                "groups",
                "transactions",
                "lifecycle",
            )
        },
    )
    change: Any = SimpleNamespace(acls={"an id": "a change"}, client_quotas=["an entity"])
    for _step in Node.apply(node, change, change):
        assert "metadata" not in seen
    assert seen[:3] == ["authorizer", "quotas", "metadata"]
