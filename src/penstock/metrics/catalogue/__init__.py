"""All measures of a node, by subject. docs/METRICS.md lists them."""
