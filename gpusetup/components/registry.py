"""All components, in the order of their actions on a host."""

from gpusetup.components.containers import CONTAINERS
from gpusetup.components.cuda import CUDA
from gpusetup.components.desktops import DESKTOPS
from gpusetup.components.driver.actions import DRIVER
from gpusetup.components.fabric import IMEX
from gpusetup.components.mig import MIG
from gpusetup.components.monitoring import MONITORING
from gpusetup.components.python.environments import PYTHON
from gpusetup.components.rdma import RDMA
from gpusetup.components.vgpu import VGPU

COMPONENTS = (DRIVER, CUDA, PYTHON, CONTAINERS, RDMA, IMEX, DESKTOPS, MIG, VGPU, MONITORING)
GROUPS = {name: group for component in COMPONENTS for name, group in component.packages.items()}
"""Field of a package set → how a plan treats it."""
