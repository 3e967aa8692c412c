"""PURE. From what was seen of a cluster to what is wrong with it, why, and what to do.

`observations` has the values that were seen, `examine` runs all checks on them, and `findings` has
the results. `penstock doctor` gathers observations over Kafka's protocol and on the local machine.
Any other source may fill the same values. A field is None where nobody looked.
"""
