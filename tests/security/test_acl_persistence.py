"""Access control entries of a real node: created through its APIs, enforced, and there after a
restart from the log and from a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.client.connection import open_connection
from penstock.config.authorizer_settings import STANDARD_AUTHORIZER
from penstock.config.node import NodeConfig, read_node_config
from penstock.node.broker.formatting import format_directories
from penstock.node.node import Node
from penstock.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from penstock.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.security.acls import AclOperation, ResourceType
from penstock.security.principals import KafkaPrincipal
from penstock.start import serving
from penstock.world import World
from penstock.world.real import run

ALICE = KafkaPrincipal("User", "alice")
TOPIC_DENIED, CLUSTER_DENIED = 29, 31


def config(path: Path, super_users: str) -> NodeConfig:
    text = f"""\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
log.dirs={path}/logs
controlled.shutdown.enable=false
authorizer.class.name={STANDARD_AUTHORIZER}
super.users={super_users}
"""
    return read_node_config(text.encode(), "server.properties")


def creation(name: str, permission: int = 3) -> CreateAclsRequest.Creation:
    return CreateAclsRequest.Creation(
        resource_type=2,
        resource_name=name,
        principal="User:alice",
        host="*",
        operation=AclOperation.READ,
        permission_type=permission,
    )


EVERY = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
NONE = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}


def may_read(node: Node, name: str) -> bool:
    assert node.authorizer is not None
    return node.authorizer.allows(ALICE, "1.2.3.4", AclOperation.READ, ResourceType.TOPIC, name)


def test_entries_are_enforced_and_survive_restarts(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        admin = config(tmp_path, "User:ANONYMOUS; User:root")
        format_directories(
            world.disk, world.rng, admin, None, ignore_formatted=False, say=lambda _line: None
        )
        async with serving(world, admin) as (node, servers):
            connection = await connect(world, servers)
            creations = (creation("orders"), creation("secret"), creation("secret", permission=2))
            created = await connection.call(
                CreateAclsRequest(creations=creations), CreateAclsResponse, timeout_s=10
            )
            assert [each.error_code for each in created.results] == [0, 0, 0]
            # The response leaves when this node's authorizer has the entries.
            assert (may_read(node, "orders"), may_read(node, "secret")) == (True, False)
            connection.close()
            controller = await connect(world, f"127.0.0.1:{node.quorum.ports['CONTROLLER']}")
            assert len((await describe(controller)).resources) == 2, "controllers have them too"
            controller.close()
        async with serving(world, admin) as (node, servers):
            assert (may_read(node, "orders"), may_read(node, "secret")) == (True, False)
            connection = await connect(world, servers)
            only = DeleteAclsRequest.Filter(
                **(EVERY | NONE | {"resource_name_filter": "secret", "permission_type": 3})  # type: ignore[arg-type]
            )
            deleted = await connection.call(
                DeleteAclsRequest(filters=(only,)), DeleteAclsResponse, timeout_s=10
            )
            assert len(deleted.filter_results[0].matching_acls) == 1
            described = await describe(connection)
            assert {
                (each.resource_name, acl.permission_type)
                for each in described.resources
                for acl in each.acls
            } == {("orders", 3), ("secret", 2)}
            connection.close()
        # The controller itself is a super user; anonymous clients are not any more. On this
        # listener the node's own connections are anonymous too, so that they need entries.
        async with serving(world, admin) as (_node, servers):
            connection = await connect(world, servers)
            broker = CreateAclsRequest.Creation(
                resource_type=4,
                resource_name="kafka-cluster",
                principal="User:ANONYMOUS",
                host="*",
                operation=AclOperation.CLUSTER_ACTION,
                permission_type=3,
            )
            await connection.call(
                CreateAclsRequest(creations=(broker,)), CreateAclsResponse, timeout_s=10
            )
            connection.close()
        async with serving(world, config(tmp_path, "User:root")) as (node, servers):
            connection = await connect(world, servers)
            refused = await describe(connection)
            assert refused.error_code == CLUSTER_DENIED
            asked = MetadataRequest(topics=(MetadataRequest.Topic(name="new"),))
            metadata = await connection.call(asked, MetadataResponse, timeout_s=10)
            assert [topic.error_code for topic in metadata.topics] == [TOPIC_DENIED]
            assert "new" not in node.metadata.image.topics
            assert may_read(node, "orders")
            assert not may_read(node, "secret")
            connection.close()

    run(main)


async def connect(world: World, servers: str) -> Any:
    host, _colon, port = servers.rpartition(":")
    return await open_connection(
        world, host, int(port), client_id="test", connect_timeout_s=5, request_timeout_s=10
    )


async def describe(connection: Any) -> DescribeAclsResponse:
    response: DescribeAclsResponse = await connection.call(
        DescribeAclsRequest(**(EVERY | NONE)),  # type: ignore[arg-type]
        DescribeAclsResponse,
        timeout_s=10,
    )
    return response
