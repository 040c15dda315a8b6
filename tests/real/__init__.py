"""Real distributions: any cloud image in a virtual machine, or a host by SSH, taken through the whole life of a stack."""

import os
from pathlib import Path

if os.geteuid() != 0:  # the lab's usual place is root's, and nothing here needs root
    os.environ.setdefault("GPUSETUP_LAB_STATE", str(Path.home() / ".local/state/gpusetup-lab"))
