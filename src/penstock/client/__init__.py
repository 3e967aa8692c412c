"""A small asyncio client for Kafka's protocol: between nodes, for the command line, Spark and the
console. Import only what is needed."""
