"""Penstock: a distributed event streaming platform that speaks Kafka's protocol."""
