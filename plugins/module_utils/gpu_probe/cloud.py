"""Ask a cloud's metadata service for the machine type and for scheduled events.

Only where the firmware names the cloud, without a proxy, and never for credentials or user data. The guide about clouds
names the document of each path.
"""

import json
import re
import threading
from typing import Any, Dict, List, Optional, Tuple

from .host import LiveHost

ADDRESS = ("169.254.169.254", 80)
_SECONDS = 1.0
_LARGEST = 64 << 10
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,63}")
_ABSENT = (404, 405)
_AZURE = "/metadata/instance/compute/{}?api-version=2021-02-01&format=text"


def collect(host: LiveHost, cloud: Optional[str]) -> Dict[str, Any]:
    """Return {"machine_type", "events"}; an event is {"what", "at"}, `at` empty when it may begin at any moment."""
    told = host.observe("cloud", lambda: _look(cloud)) if cloud in _CLOUDS else None
    if told is not None and not (told["whole"] and "machine_type" in told):
        host.note("virtualisation.machine_type", f"the metadata service of {cloud} did not answer everything in time")
    told = told or {}
    return {"machine_type": told.get("machine_type"), "events": told.get("events", [])}


def _look(cloud: Any) -> Dict[str, Any]:
    """Return the answers that arrived within the time limit for all requests together."""
    told: Dict[str, Any] = {}
    thread = threading.Thread(target=_CLOUDS[cloud], args=(told,))
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


_CLOUDS = {"aws": _aws, "azure": _azure, "gcp": _gcp, "oracle": _oracle}


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
    except ValueError:
        return []
    if isinstance(document, dict):
        document = [document.get("Upcoming maintenance", document)]  # Google documents it with and without
    return _list(document)
