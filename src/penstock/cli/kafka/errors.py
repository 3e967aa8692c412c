"""Errors as Kafka's tools print them, with the name of the Java class."""

from __future__ import annotations

from penstock.errors import ErrorCode, KafkaError

# Classes whose name does not follow from the error code's.
_NAMES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServer",
    ErrorCode.OFFSET_OUT_OF_RANGE: "OffsetOutOfRange",
    ErrorCode.REQUEST_TIMED_OUT: "Timeout",
    ErrorCode.NETWORK_EXCEPTION: "Network",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorization",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorization",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExists",
    ErrorCode.INVALID_CONFIG: "InvalidConfiguration",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "DelegationTokenDisabled",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "UnsupportedByAuthentication",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "DelegationTokenAuthorization",
}


def java_name(code: ErrorCode) -> str:
    words = _NAMES.get(code) or "".join(word.capitalize() for word in code.name.split("_"))
    return f"org.apache.kafka.common.errors.{words}Exception"


def java_text(error: KafkaError) -> str:
    return f"{java_name(error.code)}: {error.message}"
