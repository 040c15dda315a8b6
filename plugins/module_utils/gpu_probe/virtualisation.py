"""Determine the kind of machine: bare metal, a guest (of which cloud), a container, WSL.

A cloud's metadata service is asked for the machine type and for scheduled events, only where the firmware names the
cloud, without a proxy, and never for credentials or user data. The guide about clouds names the document of each path.
"""

import json
import re
import threading
from typing import Any, Dict, List, Optional, Tuple

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


ADDRESS = ("169.254.169.254", 80)
_SECONDS = 1.0
_LARGEST = 64 << 10
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,63}")
_ABSENT = (404, 405)
_AZURE = "/metadata/instance/compute/{}?api-version=2021-02-01&format=text"


def metadata(host: LiveHost, cloud: Optional[str]) -> Dict[str, Any]:
    """Return {"machine_type", "events"}; an event is {"what", "at"}, `at` empty when it may begin at any moment."""
    told = host.observe("cloud", lambda: _answers(cloud)) if cloud in _SERVICES else None
    if told is not None and not (told["whole"] and "machine_type" in told):
        host.note("virtualisation.machine_type", f"the metadata service of {cloud} did not answer everything in time")
    told = told or {}
    return {"machine_type": told.get("machine_type"), "events": told.get("events", [])}


def _answers(cloud: Any) -> Dict[str, Any]:
    """Return the answers that arrived within the time limit for all requests together."""
    told: Dict[str, Any] = {}
    thread = threading.Thread(target=_SERVICES[cloud], args=(told,))
    thread.daemon = True
    thread.start()
    thread.join(_SECONDS)
    return dict(told, whole=not thread.is_alive())


def _ask(path: str, headers: Dict[str, str], method: str = "GET") -> Tuple[int, str]:
    """Return status and text, (0, "") without an answer; only status 200 gives text, redirects are not followed."""
    import http.client  # most machines have no such service

    line = http.client.HTTPConnection(*ADDRESS, timeout=_SECONDS)
    try:
        line.request(method, path, headers=headers)
        answer = line.getresponse()
        text = answer.read(_LARGEST).decode("utf-8") if answer.status == 200 else ""
    except (OSError, ValueError, http.client.HTTPException):
        return 0, ""
    finally:
        line.close()
    return answer.status, text.strip()


def _aws(told: Dict[str, Any]) -> None:
    # IMDSv2 hands out a token first; IMDSv1 is used only where the token service does not exist.
    status, token = _ask("/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
    if not re.fullmatch(r"[A-Za-z0-9_=+/.-]{1,512}", token) and status not in _ABSENT:
        return
    headers = {"X-aws-ec2-metadata-token": token} if token else {}
    _type(told, _ask("/latest/meta-data/instance-type", headers)[1])
    events = _items(_ask("/latest/meta-data/events/maintenance/scheduled", headers)[1])
    _event(told, [(item.get("Code"), item.get("NotBefore")) for item in events if item.get("State") == "active"])
    spot = _items(_ask("/latest/meta-data/spot/instance-action", headers)[1])
    _event(told, [("spot-{}".format(item.get("action")), item.get("time")) for item in spot])


def _azure(told: Dict[str, Any]) -> None:
    headers = {"Metadata": "true"}
    _type(told, _ask(_AZURE.format("vmSize"), headers)[1])
    name = _ask(_AZURE.format("name"), headers)[1]
    for document in _items(_ask("/metadata/scheduledevents?api-version=2020-07-01", headers)[1]):
        mine = [item for item in _list(document.get("Events")) if name in _list(item.get("Resources"), str)]
        _event(told, [(item.get("EventType"), item.get("NotBefore")) for item in mine])


def _gcp(told: Dict[str, Any]) -> None:
    headers, base = {"Metadata-Flavor": "Google"}, "/computeMetadata/v1/instance/"
    _type(told, _ask(base + "machine-type", headers)[1].rpartition("/")[2])
    now = _ask(base + "maintenance-event", headers)[1]
    _event(told, [(now, "")] if now != "NONE" else [])
    for item in _items(_ask(base + "upcoming-maintenance?alt=json", headers)[1]):
        status, begins = item.get("maintenance_status"), item.get("window_start_time")
        if status in ("PENDING", "ONGOING"):
            _event(told, [("{}-maintenance".format(item.get("type")), begins if status == "PENDING" else "")])


def _oracle(told: Dict[str, Any]) -> None:
    status, shape = _ask("/opc/v2/instance/shape", {"Authorization": "Bearer Oracle"})
    _type(told, _ask("/opc/v1/instance/shape", {})[1] if status in _ABSENT else shape)


_SERVICES = {"aws": _aws, "azure": _azure, "gcp": _gcp, "oracle": _oracle}


def _type(told: Dict[str, Any], text: str) -> None:
    if _TYPE.fullmatch(text):
        told["machine_type"] = text


def _event(told: Dict[str, Any], found: List[Tuple[Any, Any]]) -> None:
    """Add events, with the cloud's words reduced to harmless characters."""
    clean = [[re.sub(r"[^\w ,:.+-]", "", str(part or ""))[:64] for part in pair] for pair in found]
    told["events"] = told.get("events", []) + [{"what": what, "at": at} for what, at in clean if what]


def _list(value: Any, kind: Any = dict) -> List[Any]:
    return [item for item in value if isinstance(item, kind)] if isinstance(value, list) else []


def _items(text: str) -> List[Dict[str, Any]]:
    """Return the objects in a JSON text that holds one object or a list of them."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if isinstance(document, dict):
        document = [document.get("Upcoming maintenance", document)]  # Google documents it with and without
    return _list(document)
