"""An asyncio client for Kafka's protocol, used between nodes and by the command line, Spark and
the console.

Modules are named after the classes of Kafka's Java client. Nothing is re-exported here, so that a
caller imports only the modules it needs.
"""
