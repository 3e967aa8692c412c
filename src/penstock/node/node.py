"""The lifecycle of a node. `start.py` builds its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from penstock.config import cluster_settings
from penstock.config.node import NodeConfig
from penstock.limits import QUOTAS_INDEXED_A_TURN
from penstock.log.directory import LogDirectory
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.node.broker.controllers import ControllerChannel
from penstock.node.broker.lifecycle import Lifecycle
from penstock.node.broker.upkeep import Upkeep
from penstock.node.controller.registration import ControllerRegistration
from penstock.node.metadata import MetadataView
from penstock.node.quorum.quorum import Quorum
from penstock.node.replication.replicas import Replicas
from penstock.node.shards.groups import Groups
from penstock.node.shards.transactions import Transactions
from penstock.node.shards.verification import TxnVerifier
from penstock.node.supervisor import Supervisor
from penstock.security.authorizer import Authorizer
from penstock.security.quotas.client_quotas import ClientQuotas
from penstock.world import Disk


@dataclass(slots=True, eq=False)
class Node:
    """`open` the node, let its server listen, `join` the cluster, `be_unfenced`, serve clients,
    `leave` the cluster and `stop`.

    A node without the broker role has the parts of a broker too, but does not open them.
    """

    disk: Disk
    config: NodeConfig
    supervisor: Supervisor
    metadata_directory: LogDirectory
    quorum: Quorum
    metadata: MetadataView
    channel: ControllerChannel
    lifecycle: Lifecycle
    registration: ControllerRegistration
    replicas: Replicas
    groups: Groups
    transactions: Transactions
    verifier: TxnVerifier
    quotas: ClientQuotas
    authorizer: Authorizer | None = None

    async def open(self) -> None:
        """Lock the log directories and read the metadata log."""
        self.metadata_directory.lock(self.disk)
        try:
            await self.replicas.store.prepare()
            await self.quorum.open()
        except Exception:
            # Not if the start is cancelled: a thread may still work in a directory.
            await self.replicas.store.release()
            self.metadata_directory.unlock()
            raise

    async def join(self, ports: Mapping[str, int]) -> None:
        """Join the quorum; register the broker, replay the metadata up to its registration and open
        its logs. `ports` has the port of each listener."""
        self.quorum.ports = dict(ports)
        await self.quorum.start()
        if self.config.is_controller:
            self.supervisor.spawn(self.registration.run())
        if not self.config.is_broker:
            return
        epoch = await self.lifecycle.register(ports)
        self.supervisor.spawn(self.lifecycle.run())
        await self.quorum.wait_applied(epoch)
        self.authorize()
        await self.replicas.open()
        self.groups.open()
        self.transactions.open()

    async def be_unfenced(self) -> None:
        """Return when the broker is unfenced, so that clients can use it. Return immediately if the
        node is no broker."""
        if not self.config.is_broker:
            return
        self.lifecycle.be_ready()
        self.supervisor.spawn(Upkeep(self.config, self.metadata, self.replicas).run())
        await self.lifecycle.wait_unfenced()
        await self.metadata.wait_unfenced(self.config.node_id)

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> Iterator[None]:
        """Pass a committed metadata change to the parts, in steps of bounded length. CreateAcls,
        DeleteAcls and AlterClientQuotas wait for the image, so the authorizer and the quotas come
        before it."""
        if self.authorizer is not None and delta.acls:
            yield from self.authorizer.apply(delta.acls, image.acls)
        changed = iter(delta.client_quotas)
        while some := list(islice(changed, QUOTAS_INDEXED_A_TURN)):
            self.quotas.apply(some, image.client_quotas)
            yield
        self.metadata.apply(image, delta)
        self.verifier.apply(image, delta)
        yield from self.replicas.apply(image, delta)
        self.groups.apply(image, delta)
        self.transactions.apply(image, delta)
        self.lifecycle.apply(image, delta)
        if self.registration.is_in(image):
            self.authorize()
        self.metadata.notify()

    def authorize(self) -> None:
        """Let the authorizer decide by the access control entries from now on. It must have all
        that were committed when the node started: those up to the node's own registration, or
        those before its term as the active controller."""
        if self.authorizer is not None:
            self.authorizer.complete_load()

    async def leave(self) -> None:
        """Move leadership to other brokers while this one still serves requests, so that no client
        request fails."""
        if (
            self.config.is_broker
            and self.config[cluster_settings.CONTROLLED_SHUTDOWN_ENABLE]
            and not self.supervisor.has_failed
        ):
            await self.lifecycle.shut_down()
        self._close_coordinators()

    async def stop(self) -> None:
        """Flush and close the logs and mark the shutdown as clean. Call it after the quorum and the
        server have stopped."""
        self._close_coordinators()
        self.verifier.close()
        await self.supervisor.cancel_all()
        self.channel.close()
        self.lifecycle.close()
        if self.replicas.has_logs:
            await self.replicas.close()
        else:
            await self.replicas.store.release()
        self.metadata_directory.unlock()

    def _close_coordinators(self) -> None:
        self.groups.close()
        self.transactions.close()
