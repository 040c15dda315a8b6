"""The host probe: describes a machine in one document. Standard library only, Python 3.6 and newer.

The same files run on targets (as the Ansible module gpu_facts) and on the controller (for its own machine and for
captures). The package imports no sibling package, so it can be shipped alone. facts.py builds the whole document;
this file imports nothing, because every module that is sent to a host would carry those imports.
"""
