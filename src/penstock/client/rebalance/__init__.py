"""Plans and runs moves of replicas that balance a cluster, fill new brokers and drain old ones."""
