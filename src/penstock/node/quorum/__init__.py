"""The KRaft quorum: driver, log, snapshots, peers."""
