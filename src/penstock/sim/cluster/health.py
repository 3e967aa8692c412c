"""Decides whether a simulated cluster is healthy (rule 25)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.ids import TopicPartition
from penstock.metadata.image import MetadataImage
from penstock.node.node import Node
from penstock.sim.cluster.nodes import ClusterNode
from penstock.sim.cluster.observers.partitions import PartitionObserver


def find_problem(
    nodes: Iterable[ClusterNode], observer: PartitionObserver, *, idle: bool = False
) -> str | None:
    """Return the first problem of a cluster, or None if it is healthy.

    A healthy cluster has one active controller, all brokers registered and unfenced, the same
    metadata on all nodes, and a full ISR for every partition. With `idle`, no client writes, so
    every record must be committed on every replica too.
    """
    return next(_problems(list(nodes), observer, idle), None)


def _problems(nodes: list[ClusterNode], observer: PartitionObserver, idle: bool) -> Iterator[str]:
    down = [node.name for node in nodes if not node.is_up or node.is_paused]
    if down:
        yield f"{', '.join(down)} not up"
        return
    processes = [
        observer.processes[node.config.node_id]
        for node in nodes
        if node.config.node_id in observer.processes
    ]
    active = [process for process in processes if process.quorum.is_leader]
    if len(active) != 1:
        yield f"{len(active)} active controllers"
        return
    image = active[0].metadata.image
    yield from _broker_problems(
        image, [process for process in processes if process.config.is_broker]
    )
    yield from _metadata_problems(image, processes)
    yield from _partition_problems(
        image, {process.config.node_id: process for process in processes}, idle
    )


def _broker_problems(image: MetadataImage, brokers: list[Node]) -> Iterator[str]:
    for process in brokers:
        broker = image.brokers.get(process.config.node_id)
        if broker is None or broker.epoch != process.lifecycle.broker_epoch or not broker.is_active:
            yield f"broker {process.config.node_id} is not registered and unfenced"


def _metadata_problems(image: MetadataImage, processes: list[Node]) -> Iterator[str]:
    for process in processes:
        if (
            process.metadata.image.topics != image.topics
            or process.metadata.image.brokers != image.brokers
            or process.metadata.image.configs != image.configs
        ):
            yield (
                f"node {process.config.node_id} has applied metadata up to "
                f"{process.metadata.image.offset} of {image.offset}"
            )


def _partition_problems(
    image: MetadataImage, processes: dict[int, Node], idle: bool
) -> Iterator[str]:
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            name = TopicPartition(topic.name, index)
            left = [
                node_id
                for node_id, process in processes.items()
                if node_id not in state.replicas
                and (name in process.replicas.partitions or name in process.replicas.store.logs)
            ]
            if left:
                yield f"{name} is still on {left}, but its replicas are {list(state.replicas)}"
            if state.leader < 0 or len(state.isr) != len(state.replicas):
                yield (
                    f"{name} has leader {state.leader} and the ISR {list(state.isr)} of "
                    f"{list(state.replicas)}"
                )
                continue
            leader = processes[state.leader].replicas.partitions.get(name)
            for node_id in state.replicas:
                replica = processes[node_id].replicas.partitions.get(name)
                if replica is None or leader is None or replica.directory.failure is not None:
                    yield f"{name} is not served by {node_id}"
                elif (
                    replica.is_leader != (node_id == state.leader)
                    or replica.leader_epoch != state.leader_epoch
                ):
                    yield f"{name} on {node_id} has another role than the metadata says"
                elif (
                    idle
                    and not replica.high_watermark
                    == replica.log_end_offset
                    == leader.log_end_offset
                ):
                    yield (
                        f"{name} on {node_id} has high watermark {replica.high_watermark} of "
                        f"{replica.log_end_offset}"
                    )
