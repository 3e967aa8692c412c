"""kafka-reassign-partitions.sh: move partitions to other brokers and log directories."""
