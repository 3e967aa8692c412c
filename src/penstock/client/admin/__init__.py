"""Administrative requests for topics, configs, consumer groups and the quorum."""
