"""Typed settings of nodes, topics and groups, with Kafka's names and defaults. Reads no files."""
