"""Watch over GPUs: rules and alerts for Prometheus with their tests, dashboards for Grafana."""
