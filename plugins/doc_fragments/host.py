"""Documentation that every module shares: `params.COMMON`."""


class ModuleDocFragment:
    """The option O(host)."""

    DOCUMENTATION = r"""
options:
  host:
    description: Settings of the host, the same for every module.
    type: dict
    suboptions:
      state_dir: {description: "State, history, jobs and logs on the host.", type: path, default: /var/lib/gpusetup}
      simulated_root:
        description: Lab only. A miniature root that the probe reads instead of the machine.
        type: str
        default: ""
      proxy: {description: "Proxy for the package manager, pip and downloads.", type: str, default: ""}
      no_proxy: {description: Hosts that are reached without the proxy., type: list, elements: str, default: []}
      ca_file: {description: PEM bundle on the host that is trusted instead of the system's., type: str, default: ""}
      owner:
        description: Token of the apply or removal that owns the host; a step of another one is refused meanwhile.
        type: str
        default: ""
"""
