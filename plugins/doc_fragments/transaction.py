"""Documentation of a package transaction: `params.TRANSACTION`."""


class ModuleDocFragment:
    """Options of both the real transaction and its preview."""

    DOCUMENTATION = r"""
options:
  manager: {description: The host's package manager., type: str, required: true, choices: [apt, dnf, zypper]}
  packages:
    description: Packages wanted.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Name., type: str, required: true}
      version: {description: "Exact version, or a pattern with V(*); empty is the newest.", type: str, default: ""}
      arch: {description: "Architecture, where it is not the host's own.", type: str, default: ""}
  remove:
    description: Patterns of packages that must not be installed; a wanted package is never matched.
    type: list
    elements: str
    default: []
  may_remove:
    description: Patterns of packages that the transaction may remove as a consequence.
    type: list
    elements: str
    default: []
  hold:
    description: Patterns of installed packages to hold afterwards, together with those asked for by name; empty holds
      nothing.
    type: list
    elements: str
    default: []
  free:
    description: "Names among the packages that are not held (compilers, headers, the distribution's Python)."
    type: list
    elements: str
    default: []
  streams:
    description: DNF module streams.
    type: list
    elements: dict
    default: []
    suboptions:
      module: {description: Module., type: str, required: true}
      stream: {description: Stream., type: str, required: true}
  replace_runfile:
    description: Let the uninstaller of a .run installation remove it before the transaction; this cannot be undone.
    type: bool
    default: false
  optional:
    description: "Leave out wanted packages that the repositories no longer offer (removal), instead of refusing."
    type: bool
    default: false
  no_way_back:
    description: "Change a host whose installed packages can no longer be had, should the transaction fail."
    type: bool
    default: false
  recommends: {description: Install recommended packages too., type: bool, default: false}
  lock_timeout: {description: Seconds to wait for the package manager's lock., type: int, default: 600}
  auto_upgrades_block: {description: Keep automatic upgrades away from the held packages., type: bool, default: true}
  driver_packages:
    description: Names among the packages that carry the driver; a transitional one of another branch is refused.
    type: list
    elements: str
    default: []
  driver_version:
    description: NVIDIA's version that the module on disk must have; empty when no driver is wanted.
    type: str
    default: ""
  driver_module:
    description: Flavour that the module on disk must have.
    type: str
    default: ""
    choices: ["", open, proprietary]
  kernels:
    description: Kernels for which the module must be there; empty is the one that boots next.
    type: list
    elements: str
    default: []
"""
