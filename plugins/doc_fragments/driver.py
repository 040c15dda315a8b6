"""Documentation of the driver that must run: `params.DRIVER`."""


class ModuleDocFragment:
    """Options of the modules that load the driver or judge the need of a reboot."""

    DOCUMENTATION = r"""
options:
  version:
    description: "NVIDIA's version that must run; when empty, nothing is loaded and no reboot is needed."
    type: str
    default: ""
  flavour: {description: Flavour that must run., type: str, default: ""}
  kernels: {description: Kernels that the driver was installed for., type: list, elements: str, default: []}
"""
