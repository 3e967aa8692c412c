"""Records of Kafka's internal logs and files, declared and encoded like wire messages."""
