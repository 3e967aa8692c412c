"""PURE. The decisions of the active controller: image and request in, records and response out.

    topics/      CreateTopics, CreatePartitions, DeleteTopics, and replica placement
    partitions/  AlterPartition, ElectLeaders, and every PartitionChangeRecord
    brokers/     registration, heartbeats, fencing, log directories
    configs/     AlterConfigs, IncrementalAlterConfigs, and effective settings
    features     UpdateFeatures, and the feature levels of a new cluster
    producer_ids AllocateProducerIds

In Kafka, topics/ and partitions/ are `ReplicationControlManager`, brokers/ is
`ClusterControlManager`, configs/ is `ConfigurationControlManager`, features is
`FeatureControlManager`, and producer_ids is `ProducerIdControlManager`.
"""
