"""Faults, one by one, on throw-away hosts: what happened, what a person saw, what is left, and the same command again.

`./dev test faults` runs them all and writes docs/reference/faults.md; `python -m tests.lab.faults WORD…` runs those whose name
holds a word and writes their rows anew. Stand-in packages, simulated GPUs. A fault is a function that fills one row.
"""

import sys

from gpusetup.content import collections_path

sys.path.append(
    str(collections_path())
)  # the points of cuts import what runs on hosts as Ansible does; pytest is told so
