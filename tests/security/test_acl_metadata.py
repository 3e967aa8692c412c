"""Access control entries in the metadata: records, images, snapshots, and the controller's
decisions."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.config.authorizer_settings import STANDARD_AUTHORIZER
from penstock.controller import acls as decisions
from penstock.controller.acls import create_acls, delete_acls
from penstock.controller.decision import ControllerContext
from penstock.errors import ErrorCode, InvariantBroken, KafkaError
from penstock.metadata.image import MetadataImage, delta_steps
from penstock.protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from penstock.protocol.messages.create_acls import CreateAclsRequest
from penstock.protocol.messages.delete_acls import DeleteAclsRequest
from penstock.security.acls import Acl, AclOperation, PatternType, PermissionType, ResourceType
from tests.config.node_examples import COMBINED, read

A, B = UUID(int=1), UUID(int=2)
Creation, Filter = CreateAclsRequest.Creation, DeleteAclsRequest.Filter


def record(acl_id: UUID, name: str = "orders", permission: int = 3) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=2,
        resource_name=name,
        pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=permission,
    )


ORDERS = Acl(2, "orders", 3, "User:alice", "*", 3, 3)


def image_of(*records: object) -> MetadataImage:
    return MetadataImage.empty().replay(records, len(records))[0]


def test_the_image_has_the_entries_and_their_changes() -> None:
    image, delta = MetadataImage.empty().replay([record(A)], 1)
    assert image.acls == {A: ORDERS}
    assert image.acl_ids == {ORDERS: A}
    assert delta.acls == {A: (None, ORDERS)}
    after, delta = image.replay([RemoveAccessControlEntryRecord(id=A)], 2)
    assert (after.acls, after.acl_ids, delta.acls) == ({}, {}, {A: (ORDERS, None)})
    assert image.acls == {A: ORDERS}, "an image does not change"


def test_an_entry_that_comes_and_goes_in_one_batch_is_no_change() -> None:
    _image, delta = MetadataImage.empty().replay(
        [record(A), RemoveAccessControlEntryRecord(id=A)], 1
    )
    assert delta.acls == {}


def test_removing_one_of_several_entries_of_a_resource_leaves_the_others() -> None:
    """CVE-2024-27309."""
    image = image_of(record(A), record(B, permission=2))
    after, _delta = image.replay([RemoveAccessControlEntryRecord(id=A)], 3)
    assert after.acls == {B: ORDERS._replace(permission=2)}


def test_the_same_entry_with_two_ids_stays_until_both_are_removed() -> None:
    image = image_of(record(A), record(B))
    assert image.acl_ids == {ORDERS: B}
    after, _delta = image.replay([RemoveAccessControlEntryRecord(id=A)], 3)
    assert (after.acls, after.acl_ids) == ({B: ORDERS}, {ORDERS: B})


def test_removing_an_entry_that_does_not_exist_stops_the_node() -> None:
    with pytest.raises(InvariantBroken, match="for an entry that does not exist"):
        image_of(RemoveAccessControlEntryRecord(id=A))


def test_a_snapshot_has_all_entries() -> None:
    image = image_of(record(A), record(B, "payments", permission=2))
    records = list(image.records())
    assert image_of(*records).acls == image.acls
    assert [each for each in records if isinstance(each, AccessControlEntryRecord)] == [
        record(A),
        record(B, "payments", permission=2),
    ]


def test_images_are_compared_by_their_entries() -> None:
    before, after = image_of(record(A), record(B)), image_of(record(B), record(A, "payments"))
    steps = delta_steps(before, after)
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
    assert end.value.value.acls == {A: (ORDERS, ORDERS._replace(resource_name="payments"))}


# Decisions


def context(**settings: str) -> ControllerContext:
    ids = (UUID(int=100 + number) for number in range(10**6))
    config = read(COMBINED, **({"authorizer.class.name": STANDARD_AUTHORIZER} | settings))
    return ControllerContext.of(config, lambda: next(ids))


def creation(**fields: object) -> CreateAclsRequest.Creation:
    valid: dict[str, object] = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": PermissionType.ALLOW,
    }
    return Creation(**valid | fields)  # type: ignore[arg-type]


def any_filter(**fields: object) -> DeleteAclsRequest.Filter:
    every: dict[str, object] = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": PermissionType.ANY,
    }
    return Filter(**every | fields)  # type: ignore[arg-type]


def test_create_writes_each_new_entry_once() -> None:
    request = CreateAclsRequest(
        creations=(creation(), creation(resource_name="payments"), creation())
    )
    result = create_acls(MetadataImage.empty(), request, context())
    assert [each.error_code for each in result.response.results] == [0, 0, 0]
    image = image_of(*result.records)
    assert sorted(acl.resource_name for acl in image.acls.values()) == ["orders", "payments"]
    again = create_acls(image, request, context())
    assert again.records == ()
    assert [each.error_code for each in again.response.results] == [0, 0, 0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resource_type": 0}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 0}, "Invalid patternType UNKNOWN"),
        ({"resource_pattern_type": 1}, "Invalid patternType ANY"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"operation": 0}, "Invalid operation UNKNOWN"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 77}, "Invalid operation UNKNOWN"),
        ({"permission_type": 0}, "Invalid permissionType UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"resource_name": ""}, "Resource name should not be empty"),
        ({"principal": "alice"}, "Could not parse principal from `alice`"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"principal": "User:" + "x" * 5_000}, "at most 4096 characters"),
    ],
)
def test_an_invalid_entry_is_refused_and_the_others_are_created(
    fields: dict[str, object], message: str
) -> None:
    request = CreateAclsRequest(creations=(creation(**fields), creation()))
    result = create_acls(MetadataImage.empty(), request, context())
    refused, created = result.response.results
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert message in (refused.error_message or "")
    assert (created.error_code, len(result.records)) == (0, 1)


def test_too_many_entries_are_refused_as_a_whole() -> None:
    creations = tuple(creation(resource_name=f"t{number}") for number in range(10_001))
    with pytest.raises(KafkaError, match="excessively large batch operation") as raised:
        create_acls(MetadataImage.empty(), CreateAclsRequest(creations=creations), context())
    assert raised.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("decide", [create_acls, delete_acls])
def test_without_an_authorizer_security_is_disabled(decide: object) -> None:
    request = CreateAclsRequest() if decide is create_acls else DeleteAclsRequest()
    with pytest.raises(KafkaError, match="No Authorizer is configured") as raised:
        decide(MetadataImage.empty(), request, context(**{"authorizer.class.name": ""}))  # type: ignore[operator]
    assert raised.value.code is ErrorCode.SECURITY_DISABLED


def test_delete_removes_what_each_filter_matches() -> None:
    image = image_of(record(A), record(B, "payments"))
    exact = any_filter(
        resource_type_filter=2,
        resource_name_filter="orders",
        pattern_type_filter=3,
        principal_filter="User:alice",
        host_filter="*",
        operation=3,
        permission_type=3,
    )
    nothing = any_filter(principal_filter="User:bob")
    request = DeleteAclsRequest(filters=(exact, nothing, any_filter(resource_type_filter=0)))
    result = delete_acls(image, request, context())
    assert result.records == (RemoveAccessControlEntryRecord(id=A),)
    found, none, unknown = result.response.filter_results
    assert [acl.resource_name for acl in found.matching_acls] == ["orders"]
    assert none.matching_acls == ()
    assert unknown.error_code == ErrorCode.INVALID_REQUEST
    everything = delete_acls(image, DeleteAclsRequest(filters=(any_filter(),) * 2), context())
    assert image.replay(everything.records, 9)[0].acls == {}, "each entry is removed once"


def test_delete_finds_all_ids_of_an_entry_that_occurs_twice() -> None:
    image = image_of(record(A), record(B))
    exact = any_filter(
        resource_type_filter=2,
        resource_name_filter="orders",
        pattern_type_filter=3,
        principal_filter="User:alice",
        host_filter="*",
        operation=3,
        permission_type=3,
    )
    result = delete_acls(image, DeleteAclsRequest(filters=(exact,)), context())
    assert image.replay(result.records, 9)[0].acls == {}


def test_delete_removes_nothing_if_it_would_be_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_of(record(A), record(B, "payments"))
    monkeypatch.setattr(decisions, "MAX_ACLS_PER_REQUEST", 1)
    with pytest.raises(KafkaError, match="Cannot remove more than 1 acls"):
        delete_acls(image, DeleteAclsRequest(filters=(any_filter(),)), context())
    monkeypatch.setattr(decisions, "MAX_ACL_COMPARISONS", 3)
    nothing = any_filter(principal_filter="User:bob")
    with pytest.raises(KafkaError, match="Send the filters in several requests"):
        delete_acls(image, DeleteAclsRequest(filters=(nothing, nothing)), context())
