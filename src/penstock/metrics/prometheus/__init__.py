"""Files for Prometheus and Grafana: alert rules with their reasons, and a dashboard."""
