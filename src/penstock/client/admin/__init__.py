"""Administrative requests: topics, configs, consumer groups, the controller quorum."""
