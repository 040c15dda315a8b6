"""A MIG layout's whole life on a host: nvidia-smi and the boards are stand-ins, systemd, SSH and the reboots are real."""

import json

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import drift, host_of
from tests.lab.plays import files_below

PLACES = ("/etc/systemd/system", "/etc/gpusetup", "/usr/local/lib")


def instances(host):
    found: list[list[str]] = []
    for line in host.ssh("nvidia-smi", "-L").stdout.splitlines():
        if line.startswith("GPU"):
            found.append([])
        else:
            found[-1].append(line.split()[1])
    return found


@pytest.mark.slow
def test_a_layout_is_applied_kept_mended_rolled_back_and_removed(lab):
    (host,) = lab.hosts(flavour="debian12", machine="h200-x2", network="mirror")
    before = files_below(host, *PLACES)

    def wanted(layout):
        return lab.asking(host, gpusetup_driver="==580.*", gpusetup_mig=json.dumps(layout))

    # The driver comes with a reboot; the layout is made after it.
    layout = {"0": "all-1g.18gb", "1": ["3g.71gb", {"3g.71gb": ["1c", "2c"]}]}
    first = wanted(layout)
    apply(lab.folder, first).well()
    both = [["1g.18gb"] * 7, ["3g.71gb", "1c.3g.71gb", "2c.3g.71gb"]]
    assert [sorted(item) for item in instances(host)] == [sorted(item) for item in both]
    lab.unchanged(first)

    facts = json.loads(gpusetup(lab.folder, "facts", first, "--format", "json").out)["hosts"][host.name]
    assert [len(gpu["slices"]["devices"]) for gpu in facts["gpus"]] == [7, 3]
    assert "7 x 1g.18gb" in gpusetup(lab.folder, "facts", first).out

    host.reboot()
    host.ssh("systemctl", "start", "gpusetup-mig")  # or wait until the boot has done it
    assert [sorted(item) for item in instances(host)] == [sorted(item) for item in both]
    assert drift(lab.folder, first)[0].code == 0

    for kind in ("-dci", "-dgi"):
        host.ssh("nvidia-smi", "mig", "-i", "0", kind)
    answer, found = drift(lab.folder, first)
    assert (answer.code, found) == (9, {"mig-0000:00:06.0": "on, without instances"}), answer.out
    apply(lab.folder, first).well()
    assert len(instances(host)[0]) == 7

    apply(lab.folder, wanted({"all": "all-3g.71gb"})).well()
    assert instances(host) == [["3g.71gb"] * 2] * 2
    lab.rolled_back(first)
    assert [sorted(item) for item in instances(host)] == [sorted(item) for item in both]

    removed = lab.removed(first)
    assert removed.code == 9, removed.out  # the driver's module stays loaded until the next boot
    assert files_below(host, *PLACES) == before
    assert host_of(removed)["removal"]["mig"] == ["0000:00:06.0", "0000:00:07.0"]
