"""Dynamic settings of topics, brokers and groups."""
