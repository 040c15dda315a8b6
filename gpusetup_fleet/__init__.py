"""Many hosts over time, and sites without a network: `fleet`, `bundle`, `watch` and `export handover` of gpusetup.

gpusetup imports a module of this package when one of these commands is used, and does without it otherwise.
"""
