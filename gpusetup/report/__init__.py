"""One Report object, printed as text, JSON, JUnit, HTML or Prometheus."""
