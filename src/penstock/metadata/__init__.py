"""PURE. Metadata records are replayed into immutable images of the cluster, as in Kafka's
`org.apache.kafka.image`. Start with `image`."""
