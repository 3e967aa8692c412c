"""What a node measures: names, histograms, and the page in Prometheus's text format."""
