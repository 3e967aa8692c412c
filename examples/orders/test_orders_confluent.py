"""Customers that use confluent-kafka."""

from __future__ import annotations

import json

from confluent_kafka import Consumer, Producer
from shop import Shop, order

from penstock.testing import ClientConfigs


def place(clients: ClientConfigs, topic: str, *numbers: int) -> None:
    producer = Producer(clients.confluent.producer())
    for number in numbers:
        producer.produce(topic, order(number))
    assert producer.flush(30) == 0


def test_each_order_gets_an_invoice(shop: Shop, penstock_clients: ClientConfigs) -> None:
    place(penstock_clients, shop.orders, 1, 2, 3)
    assert shop.serve(3) == [1, 2, 3]


def test_an_order_that_is_sent_twice_gets_one_invoice(
    shop: Shop, penstock_clients: ClientConfigs
) -> None:
    place(penstock_clients, shop.orders, 1, 1, 2, 1, 3)
    assert shop.serve(3) == [1, 2, 3]


def test_a_new_instance_continues_where_the_last_one_stopped(
    shop: Shop, penstock_clients: ClientConfigs
) -> None:
    place(penstock_clients, shop.orders, 1, 2)
    assert shop.serve(2) == [1, 2]
    place(penstock_clients, shop.orders, 2, 3)
    assert shop.serve(3) == [1, 2, 3]


def test_an_invoice_has_the_total(shop: Shop, penstock_clients: ClientConfigs) -> None:
    place(penstock_clients, shop.orders, 7)
    shop.serve(1)
    consumer = Consumer(penstock_clients.confluent.consumer("accounting"))
    consumer.subscribe([shop.invoices])
    (message,) = consumer.consume(1, timeout=30)
    consumer.close()
    assert json.loads(message.value()) == {"order": 7, "total": 10}
