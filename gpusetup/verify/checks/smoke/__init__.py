"""Seconds, on every GPU: does the stack that was installed work?"""
