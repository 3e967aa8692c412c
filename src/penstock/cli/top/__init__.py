"""A live view of brokers, topics and consumer groups (penstock top)."""
