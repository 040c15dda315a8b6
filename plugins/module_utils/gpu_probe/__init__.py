"""The host probe: one look at a machine, told as one document. Standard library only, Python 3.6 and newer.

The same files run on targets (as the Ansible module gpu_facts) and on the controller (for its own machine and for
captures). It imports none of its neighbours, so that whoever measures can take it along alone. The whole document is
made by facts.py; nothing is imported here, since a module takes along to a host whatever stands here.
"""
