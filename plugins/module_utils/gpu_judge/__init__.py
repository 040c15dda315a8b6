"""What is wanted against what is there: pure functions over plain data, the same on a host and on the controller.

Standard library only, Python 3.6 and newer; nothing here looks at a machine. Hosts import it as Ansible brings it, the
controller loads the same files (gpusetup/content.py).
"""
