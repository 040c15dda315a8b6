"""Seconds, on every GPU: whether the stack that was installed works."""
