"""Compare the wanted state with the actual one: pure functions over plain data, for hosts and the controller alike.

Standard library only, Python 3.6 and newer; nothing here reads a machine. Hosts import it through Ansible, the
controller loads the same files (gpusetup/content.py).
"""
