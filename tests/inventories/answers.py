"""What the clouds' lists say of machines, in the form that their own API references give.

AWS: API_DescribeInstances (2016-11-15). Google Cloud: instances.aggregatedList (v1). Azure: Virtual Machines - List All
(2024-07-01) and its network interfaces. NetBox: its REST API, version 4. The machines are invented.
"""

from collections.abc import Iterable
from typing import Any
from xml.sax.saxutils import escape

SUBSCRIPTION, TENANT = "00000000-1111-2222-3333-444444444444", "99999999-1111-2222-3333-444444444444"
AZURE_TOKEN = {"token_type": "Bearer", "expires_in": 3600, "ext_expires_in": 3600, "access_token": "azure-bearer-12ab"}
ROLES = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/gpus/providers"
_TRAPS = "{{ lookup('pipe', 'touch /tmp/never') }} & <more>"
"""What somebody may have written into a tag: text, whatever it looks like."""


def name(number: int) -> str:
    return f"gpu{number:05}"


def address(number: int) -> str:
    return f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"


def aws(numbers: Iterable[int], more: str) -> str:
    items = "".join(_AWS.format(
        number=f"{n:017x}", name=name(n), address=address(n), type="g4dn.xlarge" if n % 4 == 3 else "p5.48xlarge",
        zone="ab"[n % 2], partition="" if n % 4 == 3 else f"<partitionNumber>{n // 2 % 7 + 1}</partitionNumber>",
        note=escape(_TRAPS),
    ) for n in numbers)  # fmt: skip
    token = f"<nextToken>{more}</nextToken>" if more else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        f"<requestId>8f7724cf-496f-496e-8fe3-example</requestId><reservationSet>{items}</reservationSet>{token}"
        "</DescribeInstancesResponse>"
    )


_AWS = """<item><reservationId>r-{number}</reservationId><ownerId>123456789012</ownerId><groupSet/><instancesSet><item>
<instanceId>i-{number}</instanceId><imageId>ami-0abcdef1234567890</imageId>
<instanceState><code>16</code><name>running</name></instanceState><privateDnsName>ip-{address}.internal</privateDnsName>
<dnsName/><instanceType>{type}</instanceType><launchTime>2026-11-02T09:13:07.000Z</launchTime>
<placement><availabilityZone>eu-west-1{zone}</availabilityZone><groupName>gpus</groupName>
<tenancy>default</tenancy>{partition}</placement><privateIpAddress>{address}</privateIpAddress>
<architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType><blockDeviceMapping><item>
<deviceName>/dev/sda1</deviceName><ebs><volumeId>vol-{number}</volumeId><status>attached</status>
<attachTime>2026-11-02T09:13:09.000Z</attachTime><deleteOnTermination>true</deleteOnTermination></ebs></item>
</blockDeviceMapping><tagSet><item><key>Name</key><value>{name}</value></item><item><key>note</key><value>{note}</value>
</item></tagSet></item></instancesSet></item>
"""


def gcp(numbers: Iterable[int], more: str) -> dict[str, Any]:
    zones: dict[str, Any] = {}
    base = "https://www.googleapis.com/compute/v1/projects/example-project"
    for n in numbers:
        zone = f"europe-west4-{'ab'[n % 2]}"
        kind = "g2-standard-8" if n % 4 == 3 else "a3-ultragpu-8g"
        machine: dict[str, Any] = {
            "kind": "compute#instance", "id": str(10**18 + n), "name": name(n), "status": "RUNNING",
            "creationTimestamp": "2026-11-02T01:13:07.000-07:00", "zone": f"{base}/zones/{zone}",
            "machineType": f"{base}/zones/{zone}/machineTypes/{kind}", "selfLink": f"{base}/zones/{zone}/instances/{name(n)}",
            "labels": {"note": "plain"}, "metadata": {"kind": "compute#metadata", "items": [{"key": "note", "value": _TRAPS}]},
            "networkInterfaces": [{"network": f"{base}/global/networks/default", "networkIP": address(n), "name": "nic0",
                                   "subnetwork": f"{base}/regions/europe-west4/subnetworks/default"}],
        }  # fmt: skip
        if n % 4 != 3:
            machine["resourceStatus"] = {"physicalHost": f"/block{n // 2}/sub1/host{n}"}
        zones.setdefault(f"zones/{zone}", {"instances": []})["instances"].append(machine)
    zones["zones/europe-west4-c"] = {"warning": {"code": "NO_RESULTS_ON_PAGE"}}
    return {"kind": "compute#instanceAggregatedList", "items": zones} | ({"nextPageToken": more} if more else {})


def azure_discovery(path: str) -> dict[str, Any]:
    """Return what the sign-in library asks before it signs in."""
    authority = f"https://login.microsoftonline.com/{TENANT}"
    if "discovery/instance" in path:
        names = ["login.microsoftonline.com", "login.windows.net", "login.microsoft.com", "sts.windows.net"]
        return {
            "tenant_discovery_endpoint": f"{authority}/v2.0/.well-known/openid-configuration",
            "metadata": [{"preferred_network": names[0], "preferred_cache": names[1], "aliases": names}],
        }
    return {
        "token_endpoint": f"{authority}/oauth2/v2.0/token",
        "authorization_endpoint": f"{authority}/oauth2/v2.0/authorize",
        "issuer": f"{authority}/v2.0",
    }


def azure(path: str, query: dict[str, str], hosts: int, page: int) -> dict[str, Any]:
    if path.endswith("/virtualMachineScaleSets"):
        return {"value": []}
    if path.endswith("/virtualMachines"):
        start = int(query.get("$skiptoken", 0))
        listed: dict[str, Any] = {"value": [_azure_machine(n) for n in range(start, min(hosts, start + page))]}
        if start + page < hosts:
            listed["nextLink"] = f"https://management.azure.com{path}?$skiptoken={start + page}"
        return listed
    number = int(path.removesuffix("/instanceView").rpartition("gpu")[2])
    if path.endswith("/instanceView"):
        return {"statuses": [{"code": "ProvisioningState/succeeded"}, {"code": "PowerState/running"}]}
    return {
        "id": path, "name": f"nic-{name(number)}", "etag": "1",
        "properties": {
            "macAddress": "00-0D-3A-00-00-01", "primary": True, "networkSecurityGroup": {"id": f"{ROLES}/Microsoft.Network/networkSecurityGroups/gpus"},
            "ipConfigurations": [{"name": "ipconfig1", "properties": {
                "privateIPAddress": address(number), "primary": True, "subnet": {"id": f"{ROLES}/Microsoft.Network/virtualNetworks/v/subnets/s"},
            }}],
        },
    }  # fmt: skip


def _azure_machine(number: int) -> dict[str, Any]:
    size = "Standard_NC4as_T4_v3" if number % 4 == 3 else "Standard_ND96isr_H100_v5"
    return {
        "id": f"{ROLES}/Microsoft.Compute/virtualMachines/{name(number)}", "name": name(number),
        "type": "Microsoft.Compute/virtualMachines", "location": "westeurope", "zones": [str(number % 2 + 1)],
        "tags": {"note": _TRAPS},
        "properties": {
            "vmId": f"{number:08}-0000-0000-0000-000000000000", "hardwareProfile": {"vmSize": size},
            "provisioningState": "Succeeded", "timeCreated": "2026-11-02T09:13:07.1234567+00:00",
            "storageProfile": {"osDisk": {"osType": "Linux", "name": "os"}, "dataDisks": [],
                               "imageReference": {"publisher": "canonical", "offer": "ubuntu-24_04-lts", "sku": "server"}},
            "osProfile": {"computerName": name(number), "linuxConfiguration": {"disablePasswordAuthentication": True}},
            "networkProfile": {"networkInterfaces": [
                {"id": f"{ROLES}/Microsoft.Network/networkInterfaces/nic-{name(number)}"}]},
        },
    }  # fmt: skip


def netbox(path: str, query: dict[str, str], base: str, hosts: int, page: int) -> dict[str, Any]:
    if path == "/api/status/":
        return {"netbox-version": "4.3.7", "python-version": "3.12.3", "plugins": {}}
    if path == "/api/schema/":
        filters = {"get": {"parameters": [{"name": "role"}, {"name": "status"}]}}
        places = ("/api/dcim/devices/", "/api/virtualization/virtual-machines/")
        return {"info": {"version": "4.3.7 (4.3)"}, "paths": dict.fromkeys(places, filters)}
    kinds = [_part(1, "dgx-h100"), _part(2, "t4-server")]
    lists = {
        "/api/dcim/sites/": [_part(1, "ams1") | {"prefix_count": 0, "region": None, "group": None}],
        "/api/dcim/racks/": [_part(n + 1, f"A{n:02}") | {"role": None} for n in range(8)],
        "/api/dcim/device-roles/": [_part(1, "gpu")],
        "/api/dcim/device-types/": [
            kind | {"model": kind["name"], "manufacturer": _part(1, "nvidia")} for kind in kinds
        ],
        "/api/dcim/manufacturers/": [_part(1, "nvidia")],
    }
    if path != "/api/dcim/devices/":
        found = lists.get(path, [])
        return {"count": len(found), "next": None, "previous": None, "results": found}
    assert query["role"] == "gpu"
    start = int(query.get("offset", 0))
    devices = [
        {
            "id": n + 1, "name": name(n), "device_type": kinds[n % 4 == 3], "role": _part(1, "gpu"), "tenant": None,
            "platform": None, "serial": f"S{n}", "asset_tag": None, "site": _part(1, "ams1"), "location": None,
            "rack": _part(n % 8 + 1, f"A{n % 8:02}") if n % 4 != 3 else None, "position": 4.0, "cluster": None,
            "virtual_chassis": None, "status": {"value": "active", "label": "Active"}, "custom_fields": {}, "tags": [],
            "comments": _TRAPS, "local_context_data": None,
            "primary_ip": {"id": n, "family": {"value": 4, "label": "IPv4"}, "address": f"{address(n)}/16"},
            "primary_ip4": {"id": n, "family": {"value": 4, "label": "IPv4"}, "address": f"{address(n)}/16"}, "primary_ip6": None,
        }
        for n in range(start, min(hosts, start + page))
    ]  # fmt: skip
    more = f"{base}{path}?role=gpu&status=active&limit={page}&offset={start + page}"
    return {"count": hosts, "next": more if start + page < hosts else None, "previous": None, "results": devices}


def _part(number: int, word: str) -> dict[str, Any]:
    return {"id": number, "name": word, "slug": word.lower(), "display": word}
