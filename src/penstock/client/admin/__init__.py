"""Administrative requests for topics, configs, consumer groups, transactions and the quorum."""
