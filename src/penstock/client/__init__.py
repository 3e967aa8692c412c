"""A small asyncio client for Kafka's protocol: between nodes, for the command line, and later for Spark and the console."""

from __future__ import annotations

from penstock.client.admin import Admin, ClusterInfo, ConfigEntry, ConfigSource, ConfigSynonym, Resource
from penstock.client.client import Client
from penstock.client.consumer import BEGINNING, END, Consumer, ConsumerRecord, Since
from penstock.client.elections import Election
from penstock.client.faults import ConnectionFailed
from penstock.client.metadata import Broker, PartitionInfo, TopicInfo
from penstock.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset, Isolation
from penstock.client.pending import Delivered
from penstock.client.producer import Producer
from penstock.client.quorum_info import QuorumInfo, QuorumReplica

__all__ = [
    "BEGINNING",
    "EARLIEST",
    "END",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "Broker",
    "Client",
    "ClusterInfo",
    "ConfigEntry",
    "ConfigSource",
    "ConfigSynonym",
    "ConnectionFailed",
    "Consumer",
    "ConsumerRecord",
    "Delivered",
    "Election",
    "FoundOffset",
    "Isolation",
    "PartitionInfo",
    "Producer",
    "QuorumInfo",
    "QuorumReplica",
    "Resource",
    "Since",
    "TopicInfo",
]
