"""TLS: keys, certificates and SSLContexts from Kafka's settings. Not pure."""
