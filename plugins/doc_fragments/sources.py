"""Documentation of package repositories: `params.SOURCES`."""


class ModuleDocFragment:
    """Repositories, as they are configured and as a preview takes them."""

    DOCUMENTATION = r"""
options:
  sources:
    description: Repositories wanted.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Name of the file that defines it., type: str, required: true}
      kind: {description: Package manager that it is for., type: str, required: true, choices: [apt, dnf, zypper]}
      description: {description: "A person's words for it (dnf, zypper).", type: str, default: ""}
      uris: {description: Addresses., type: list, elements: str, default: []}
      like_suite:
        description: Take addresses and key from the host's own entry for this suite (apt).
        type: str
        default: ""
      suites: {description: Suites (apt)., type: list, elements: str, default: []}
      components: {description: Components (apt)., type: list, elements: str, default: []}
      architectures: {description: Architectures (apt)., type: list, elements: str, default: []}
      repo_gpgcheck: {description: "The metadata is signed (dnf, zypper).", type: bool, default: true}
      gpgcheck: {description: "The packages are signed (dnf, zypper).", type: bool, default: true}
      module_hotfixes: {description: Module streams do not hide its packages (dnf)., type: bool, default: false}
      exclude: {description: Patterns of packages that it does not give (dnf)., type: list, elements: str, default: []}
      priority: {description: "Priority (dnf, zypper); 0 is the package manager's own.", type: int, default: 0}
      installer:
        description: The package on the host that this repository comes in. It is unpacked below the state folder, and
          brings its own key.
        type: dict
        suboptions:
          path: {description: Its path., type: str, required: true}
          sha256: {description: Its digest., type: str, default: ""}
          directory: {description: "The distribution that it must be for, as NVIDIA calls it.", type: str, default: ""}
          fingerprints:
            description: "All 40 digits of each key that may sign; when empty, the digest vouches for the key in it."
            type: list
            elements: str
            default: []
      key:
        description: The key, proven by its full fingerprint. One of O(sources[].key.armored), file, url and package
          says where it is.
        type: dict
        suboptions:
          fingerprints: {description: All 40 digits of each key that may sign., type: list, elements: str, default: []}
          armored: {description: The key itself., type: str, default: ""}
          file: {description: Its path on the host., type: str, default: ""}
          url: {description: Its address., type: str, default: ""}
          sha256: {description: Digest of what the address gives., type: str, default: ""}
          package:
            description: A package that holds it.
            type: dict
            suboptions:
              url: {description: The package's address., type: str, required: true}
              sha256: {description: Its digest., type: str, required: true}
              member: {description: Path of the key in it., type: str, required: true}
  enable:
    description: Identifiers of dnf repositories that are configured but off.
    type: list
    elements: str
    default: []
  replace: {description: Address prefixes whose other entries are switched off., type: list, elements: str, default: []}
  pins:
    description: apt preferences.
    type: list
    elements: dict
    default: []
    suboptions:
      packages: {description: Names or patterns., type: list, elements: str, required: true}
      origin: {description: Host of the repository., type: str, default: ""}
      release: {description: Release terms., type: str, default: ""}
      version: {description: Version or pattern., type: str, default: ""}
      priority: {description: Priority., type: int, required: true}
"""
