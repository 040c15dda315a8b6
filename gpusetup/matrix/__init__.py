"""The compatibility matrix: dated, sourced data, loaded lazily, looked up by hardware and release."""
