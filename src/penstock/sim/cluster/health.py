"""Whether a simulated cluster is as it should be when nothing is wrong with the world (invariant
25)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.ids import TopicPartition
from penstock.metadata.image import MetadataImage
from penstock.node.node import Node
from penstock.sim.cluster.nodes import ClusterNode
from penstock.sim.cluster.observer import Observer


def trouble(
    nodes: Iterable[ClusterNode], observer: Observer, *, at_rest: bool = False
) -> str | None:
    """The first thing that is not well; None where all is. `at_rest`: nobody writes, so everything
    must be committed everywhere."""
    return next(_troubles(list(nodes), observer, at_rest), None)


def _troubles(nodes: list[ClusterNode], observer: Observer, at_rest: bool) -> Iterator[str]:
    down = [node.name for node in nodes if not node.is_up or node.is_paused]
    if down:
        yield f"{', '.join(down)} not up"
        return
    lives = [
        observer.lives[node.config.node_id]
        for node in nodes
        if node.config.node_id in observer.lives
    ]
    active = [life for life in lives if life.quorum.is_leader]
    if len(active) != 1:
        yield f"{len(active)} active controllers"
        return
    image = active[0].metadata.image
    yield from _of_brokers(image, [life for life in lives if life.config.is_broker])
    yield from _of_metadata(image, lives)
    yield from _of_partitions(image, {life.config.node_id: life for life in lives}, at_rest)


def _of_brokers(image: MetadataImage, brokers: list[Node]) -> Iterator[str]:
    for life in brokers:
        broker = image.brokers.get(life.config.node_id)
        if broker is None or broker.epoch != life.lifecycle.broker_epoch or not broker.is_active:
            yield f"broker {life.config.node_id} is not registered and unfenced"


def _of_metadata(image: MetadataImage, lives: list[Node]) -> Iterator[str]:
    for life in lives:
        if (
            life.metadata.image.topics != image.topics
            or life.metadata.image.brokers != image.brokers
            or life.metadata.image.configs != image.configs
        ):
            yield (
                f"node {life.config.node_id} has metadata up to "
                f"{life.metadata.image.offset} alone, of {image.offset}"
            )


def _of_partitions(image: MetadataImage, lives: dict[int, Node], at_rest: bool) -> Iterator[str]:
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            name = TopicPartition(topic.name, index)
            if state.leader < 0 or len(state.isr) != len(state.replicas):
                yield (
                    f"{name} has leader {state.leader} and the in-sync replicas "
                    f"{list(state.isr)} of {list(state.replicas)}"
                )
                continue
            led = lives[state.leader].replicas.partitions.get(name)
            for replica in state.replicas:
                partition = lives[replica].replicas.partitions.get(name)
                if partition is None or led is None or partition.directory.failure is not None:
                    yield f"{name} is not served by {replica}"
                elif (
                    partition.is_leader != (replica == state.leader)
                    or partition.leader_epoch != state.leader_epoch
                ):
                    yield f"{name} has another role on {replica} than it should have"
                elif (
                    at_rest
                    and not partition.high_watermark
                    == partition.log_end_offset
                    == led.log_end_offset
                ):
                    yield (
                        f"{name} is at {partition.high_watermark} of {partition.log_end_offset} "
                        f"on {replica}"
                    )
