"""A MIG layout's whole life on a host: nvidia-smi and the boards are stand-ins, systemd, SSH and the reboots are real."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import drift, host_of, stand_ins
from tests.lab.plays import files_below

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.lab.host import Host
    from tests.lab.repository.build import Repositories

PLACES = ("/etc/systemd/system", "/etc/gpusetup", "/usr/local/lib")


def instances(host: Host) -> list[list[str]]:
    """The profiles of each GPU's devices, as nvidia-smi lists them."""
    found: list[list[str]] = []
    for line in host.ssh("nvidia-smi", "-L").stdout.splitlines():
        if line.startswith("GPU"):
            found.append([])
        else:
            found[-1].append(line.split()[1])
    return found


@pytest.mark.slow
def test_a_layout_is_applied_kept_mended_rolled_back_and_removed(
    lab_hosts: Callable[..., list[Host]],
    lab_inventory: Callable[..., Path],
    lab_repositories: Repositories,
    tmp_path: Path,
) -> None:
    (host,) = lab_hosts(flavour="debian12", machine="h200-x2", network="mirror")
    before = files_below(host, *PLACES)

    def wanted(layout: object) -> Path:
        more = {"gpusetup_driver": "==580.*", "gpusetup_mig": json.dumps(layout)}
        return lab_inventory([host], stand_ins(lab_repositories, **more))

    refused = apply(tmp_path, wanted({"all": {"seven": 7}}))
    assert refused.code == 3, refused.out
    assert not host.path("/var/lib/gpusetup/state.json").exists()

    # The driver comes with a reboot; the layout is made after it.
    layout = {"0": "all-1g.18gb", "1": ["3g.71gb", {"3g.71gb": ["1c", "2c"]}]}
    first = wanted(layout)
    done = apply(tmp_path, first)
    assert done.code == 0, done.out + done.err
    both = [["1g.18gb"] * 7, ["3g.71gb", "1c.3g.71gb", "2c.3g.71gb"]]
    assert [sorted(item) for item in instances(host)] == [sorted(item) for item in both]
    again = apply(tmp_path, first)
    assert (again.code, again.hosts[host.name]["state"]) == (0, "unchanged"), again.out

    facts = json.loads(gpusetup(tmp_path, "facts", first, "--format", "json").out)["hosts"][host.name]
    assert [len(gpu["slices"]["devices"]) for gpu in facts["gpus"]] == [7, 3]
    assert "7 x 1g.18gb" in gpusetup(tmp_path, "facts", first).out

    too_much = apply(tmp_path, wanted({"all": ["4g.71gb", "4g.71gb"]}))
    assert too_much.code == 5, too_much.out
    (refusal,) = too_much.hosts[host.name]["refusals"]
    assert (refusal["reference"], "what fits: 1 x 4g.71gb" in refusal["hint"]) == ("GS-374", True)

    first = wanted(layout)  # every wish is written to the same inventory
    host.reboot()
    host.ssh("systemctl", "start", "gpusetup-mig")  # or wait until the boot has done it
    assert [sorted(item) for item in instances(host)] == [sorted(item) for item in both]
    assert drift(tmp_path, first)[0].code == 0

    for kind in ("-dci", "-dgi"):
        host.ssh("nvidia-smi", "mig", "-i", "0", kind)
    answer, found = drift(tmp_path, first)
    assert (answer.code, found) == (9, {"mig-0000:00:06.0": "on, without instances"}), answer.out
    assert apply(tmp_path, first).code == 0
    assert len(instances(host)[0]) == 7

    other = apply(tmp_path, wanted({"all": "all-3g.71gb"}))
    assert other.code == 0, other.out + other.err
    assert instances(host) == [["3g.71gb"] * 2] * 2
    back = gpusetup(tmp_path, "rollback", first, "--format", "json")
    assert back.code == 0, back.out + back.err
    assert [sorted(item) for item in instances(host)] == [sorted(item) for item in both]

    removed = gpusetup(tmp_path, "remove", first, "--yes", "--format", "json")
    assert removed.code == 9, removed.out  # the driver's module stays loaded until the next boot
    assert files_below(host, *PLACES) == before
    assert host_of(removed)["removal"]["mig"] == ["0000:00:06.0", "0000:00:07.0"]
