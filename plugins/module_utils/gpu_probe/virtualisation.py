"""Determine the kind of machine: bare metal, a guest (of which cloud), a container, WSL."""

import re
from typing import Any, Dict, Optional

from .host import LiveHost

_DMI = "/sys/class/dmi/id/"
_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
_HYPERVISORS = (
    ("amazon ec2", "kvm"),
    ("google", "kvm"),
    ("qemu", "kvm"),
    ("kvm", "kvm"),
    ("alibaba", "kvm"),
    ("openstack", "kvm"),
    ("tencent", "kvm"),
    ("digitalocean", "kvm"),
    ("oraclecloud", "kvm"),
    ("vmware", "vmware"),
    ("virtualbox", "virtualbox"),
    ("innotek", "virtualbox"),
    ("xen", "xen"),
    ("bochs", "bochs"),
    ("parallels", "parallels"),
    ("nutanix", "kvm"),
)
_CLOUDS = (
    ("amazon ec2", "aws"),
    ("google", "gcp"),
    ("alibaba cloud", "alibaba"),
    ("tencent cloud", "tencent"),
    ("oraclecloud", "oracle"),
    ("digitalocean", "digitalocean"),
    ("hetzner", "hetzner"),
    ("openstack", "openstack"),
)
# Constants of the kernel (PROC_PID_INIT_INO, PROC_UTS_INIT_INO).
_FIRST_NAMESPACES = ("pid:[4026531836]", "uts:[4026531838]")
_LAPTOPS = ("8", "9", "10", "14", "31", "32")


def collect(host: LiveHost) -> Dict[str, Any]:
    """Return the kind of machine; "driver_refused" says why no driver may be installed here, None when it may."""
    dmi = {name: host.value(_DMI + name) or "" for name in ("sys_vendor", "product_name", "chassis_type")}
    dmi["chassis_asset_tag"] = (host.read(_DMI + "chassis_asset_tag", keep=_cloud_tag) or "").strip()
    said = " ".join((dmi["sys_vendor"], dmi["product_name"], dmi["chassis_asset_tag"])).lower()
    cloud = next((name for text, name in _CLOUDS if text in said), None)
    if dmi["chassis_asset_tag"] == _AZURE_TAG:
        cloud = "azure"
    wsl = is_wsl(host)
    container = None if wsl else _container(host)
    return {
        "kind": _kind(host, said, dmi, wsl),
        "cloud": cloud,
        "vendor": dmi["sys_vendor"] or None,
        "product": dmi["product_name"] or None,
        "laptop": dmi["chassis_type"] in _LAPTOPS,
        "container": container,
        "wsl": wsl,
        "driver_refused": "wsl" if wsl else ("container" if container else None),
    }


def _cloud_tag(text: str) -> str:
    """Keep an asset tag only if a cloud set it; a data centre's own tag identifies the machine."""
    return text if text.strip() == _AZURE_TAG or "cloud" in text.lower() else ""


def _kind(host: LiveHost, said: str, dmi: Dict[str, Any], wsl: bool) -> str:
    if wsl:
        return "wsl"
    if host.read("/proc/cpuinfo", keep=_hypervisor_flag) or host.exists("/sys/hypervisor/type"):
        if dmi["sys_vendor"] == "Microsoft Corporation":
            return "microsoft"
        named = next((kind for text, kind in _HYPERVISORS if text in said), None)
        return named or host.value("/sys/hypervisor/type") or "unknown"
    if ".metal" in said:
        return "none"
    named = next((kind for text, kind in _HYPERVISORS if text in said and text not in ("amazon ec2", "google")), None)
    return named or "none"


def _hypervisor_flag(text: str) -> str:
    """Reduce /proc/cpuinfo to whether it shows a hypervisor."""
    return "flags: hypervisor\n" if re.search(r"^flags\s*:.*\bhypervisor\b", text, re.MULTILINE) else ""


def is_wsl(host: LiveHost) -> bool:
    """Return whether this is WSL."""
    release = host.value("/proc/sys/kernel/osrelease") or ""
    return bool(re.search(r"microsoft|WSL", release)) or host.exists("/usr/lib/wsl/lib")


def _container(host: LiveHost) -> Optional[str]:
    """Return the name of the container runtime, None outside a container.

    A marker file alone proves nothing: virtual machines are built from container images too. The kernel's initial PID
    and UTS namespaces mean no container; another PID namespace means a container even without a marker.
    """
    inside = [host.link("/proc/self/ns/" + name) for name in ("pid", "uts")]
    if inside == list(_FIRST_NAMESPACES):
        return None
    named = host.value("/run/systemd/container") or host.value("/run/host/container-manager")
    if named:
        return named
    if host.exists("/.dockerenv"):
        return "docker"
    if host.exists("/run/.containerenv"):
        return "podman"
    groups = host.read("/proc/1/cgroup", keep=_container_groups) or ""
    match = re.search(r"docker|kubepods|lxc|libpod|containerd", groups)
    if match:
        return match.group(0)
    return "unknown" if inside[0] and inside[0] != _FIRST_NAMESPACES[0] else None


def _container_groups(text: str) -> str:
    """Reduce control groups to the names of container runtimes (never their ids)."""
    return "".join(word + "\n" for word in sorted(set(re.findall(r"docker|kubepods|lxc|libpod|containerd", text))))
