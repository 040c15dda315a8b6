"""Files that let network adapters and drives access GPU memory; host and controller must agree on them."""

import json
import re
from typing import Any, Dict, Iterable, List, Optional

LOAD = "/etc/modules-load.d/gpusetup-rdma.conf"
LIMITS = "/etc/security/limits.d/gpusetup-rdma.conf"
MANAGER = "/etc/systemd/system.conf.d/gpusetup-rdma.conf"
OPTIONS = "/etc/modprobe.d/gpusetup-p2pdma.conf"
CUFILE = "/etc/cufile.json"
REGISTRY = "RMForceStaticBar1=1;RmForceDisableIomapWC=1;"
"""Driver settings that let drives read and write its memory window."""
MULTIPATH = "/sys/module/nvme_core/parameters/multipath"

_LIMITS = """# Written by gpusetup: RDMA locks every buffer in memory, and the usual limit is 8 MiB.
*    -    memlock    unlimited
root    -    memlock    unlimited
"""
_MANAGER = """# Written by gpusetup: RDMA locks every buffer in memory; this is for services.
[Manager]
DefaultLimitMEMLOCK=infinity
"""
_OPTIONS = """# Written by gpusetup: NVMe drives reach GPU memory by PCI peer-to-peer DMA.
options nvme_core multipath=N
options nvidia NVreg_RegistryDwords="{}"
"""


def files(stack: str, modules: Iterable[str], p2pdma: bool) -> Dict[str, Optional[str]]:
    """Return the content of each file; None means: restore what was there before."""
    names = list(modules)
    has_stack = stack not in ("", "none")
    return {
        LOAD: "# Written by gpusetup.\n{}\n".format("\n".join(names)) if names else None,
        LIMITS: _LIMITS if has_stack else None,
        MANAGER: _MANAGER if has_stack else None,
        OPTIONS: _OPTIONS.format(REGISTRY) if p2pdma else None,
    }


def switched_on(text: Optional[str]) -> Optional[str]:
    """Return cufile.json (JSON with comments) with P2PDMA enabled and all else unchanged; None if it is unreadable."""
    switch = '"use_pci_p2pdma": true'
    kept = text if text is not None and text.strip() else "{}"
    try:
        document = json.loads(re.sub(r"^\s*//.*$", "", kept, flags=re.MULTILINE))
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("properties", {}), dict):
        return None
    if "use_pci_p2pdma" in document.get("properties", {}):
        return re.sub(r'(?m)^((?:(?!//).)*)"use_pci_p2pdma"\s*:\s*(?:true|false)', r"\1" + switch, kept, count=1)
    if "properties" in document:
        opening, more, beside = r'"properties"\s*:\s*\{', switch, document["properties"]
    else:
        opening, more, beside = r"\{", '"properties": {' + switch + "}", document
    found = re.search(r"(?m)^(?:(?!//).)*?" + opening, kept)
    if found is None:
        return None
    return kept[: found.end()] + "\n    " + more + ("," if beside else "\n") + kept[found.end() :]


def waits(multipath: Optional[str], registry: str) -> List[str]:
    """Return which P2PDMA settings the loaded modules do not have yet."""
    found = []
    if multipath == "Y":
        found.append("nvme_core is loaded with multipath, which peer-to-peer DMA excludes")
    if "RMForceStaticBar1=1" not in registry:
        found.append("the driver that is loaded has no static BAR1")
    return found


def of_storage(storage: Optional[Dict[str, Any]]) -> List[str]:
    """Return the same from a host's `storage` facts; empty when nothing is installed yet."""
    if storage is None:
        return []
    return waits({True: "Y", False: "N"}.get(storage["multipath"]), storage["registry"])
