"""A hundred tests, each with a new topic: how long a suite takes on one cluster."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing import ClientConfigs


@pytest.mark.parametrize("number", range(100))
def test_a_topic_has_only_what_its_test_wrote(
    number: int, penstock_topic: str, penstock_clients: ClientConfigs
) -> None:
    producer = Producer(penstock_clients.confluent.producer())
    producer.produce(penstock_topic, str(number).encode())
    assert producer.flush(30) == 0
    consumer = Consumer(penstock_clients.confluent.consumer())
    consumer.assign([TopicPartition(penstock_topic, 0, 0)])
    (message,) = consumer.consume(1, timeout=30)
    assert (message.offset(), message.value()) == (0, str(number).encode())
    consumer.close()
