#!/usr/bin/env python3
"""A dynamic inventory from the list that a cloud's command line prints; standard library only.

    aws ec2 describe-instances --output json > instances.json        or:
    gcloud compute instances list --format json > instances.json     or: [{"name": …, "address": …, "type": …}]
    GPUSETUP_INSTANCES=instances.json gpusetup plan instances.py

Machines that do not run are left out. Groups are the machine types: type_p5_48xlarge.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def machines(document: Any) -> Iterator[tuple[str, str, str]]:
    """Yield name, address and type of every running machine, whichever cloud printed the list."""
    if isinstance(document, dict):
        for reservation in document.get("Reservations", []):
            for item in reservation["Instances"]:
                if item["State"]["Name"] == "running":
                    tags = {tag["Key"]: tag["Value"] for tag in item.get("Tags", [])}
                    address = item.get("PublicIpAddress") or item["PrivateIpAddress"]
                    yield tags.get("Name") or item["InstanceId"], address, item["InstanceType"]
        return
    for item in document:
        if "networkInterfaces" in item:
            if item["status"] == "RUNNING":
                yield item["name"], item["networkInterfaces"][0]["networkIP"], item["machineType"].rpartition("/")[2]
        else:
            yield item["name"], item["address"], item.get("type", "unknown")


def inventory(document: Any) -> dict[str, Any]:
    """Return what Ansible asks for."""
    groups = {"_meta": {"hostvars": {}}, "all": {"children": []}}
    for name, address, kind in machines(document):
        group = "type_" + re.sub(r"[^A-Za-z0-9]+", "_", kind)
        if group not in groups:
            groups[group] = {"hosts": []}
            groups["all"]["children"].append(group)
        groups[group]["hosts"].append(name)
        groups["_meta"]["hostvars"][name] = {"ansible_host": address}
    return groups


if __name__ == "__main__":
    path = Path(os.environ.get("GPUSETUP_INSTANCES") or Path(__file__).with_name("instances.json"))
    if sys.argv[1:2] == ["--host"]:
        sys.stdout.write("{}\n")
    else:
        sys.stdout.write(json.dumps(inventory(json.loads(path.read_text(encoding="utf-8"))), indent=1) + "\n")
