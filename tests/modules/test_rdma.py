"""RDMA and GPUDirect on a host; modprobe and the tool that makes the initramfs are stand-ins."""

import re
from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import boot_image, machine
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import gpudirect
from ansible_collections.gpusetup.stack.plugins.modules import gpu_rdma

from tests.modules.stand_ins import below, programs, write
from tests.stored import stored

NVIDIA_S = stored("rdma_cufile.txt")


TELLS = '#!/bin/sh\necho "$(basename "$0") $*" >>"$STAND_IN_ROOT/did"\n'
LOADS = """[ "$1" = nvidia_peermem ] && { echo "modprobe: ERROR: could not insert: Invalid argument" >&2; exit 1; }
echo "$1 1 0 - Live 0x0" >>"$STAND_IN_ROOT/MODULES"
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    below(tmp_path, monkeypatch, {gpudirect: "LOAD LIMITS MANAGER OPTIONS CUFILE MULTIPATH"})
    for name in ("MODULES", "PARAMS", "BUILT_IN"):
        monkeypatch.setattr(gpu_rdma, name, str(tmp_path / name))
    write(tmp_path, {"MODULES": "nvidia 1 0 - Live 0x0\n", "did": "", "boot/initrd.img-6.8.0": "image"})
    for folder in (tmp_path / "etc", Path(gpudirect.MULTIPATH).parent):
        folder.mkdir(parents=True)
    made = TELLS + 'touch "$STAND_IN_ROOT/boot/initrd.img-6.8.0"\n'
    programs(tmp_path, monkeypatch, {"modprobe": TELLS + LOADS, "update-initramfs": made})
    monkeypatch.setattr(boot_image, "path_of", lambda kernel: str(tmp_path / f"boot/initrd.img-{kernel}"))
    monkeypatch.setattr(machine.Machine, "wanted_kernels", lambda _self, _given: ["6.8.0"])
    return tmp_path


@pytest.fixture
def configure(root, run_module):
    return lambda **more: run_module(gpu_rdma, host={"state_dir": str(root / "state")}, **more)


def did(root):
    return (root / "did").read_text().splitlines()


def test_limits_and_modules_now_and_at_every_boot(root, configure):
    first = configure(stack="inbox", modules=["ib_ipoib", "gdrdrv"])
    assert (first["changed"], first["pending"], first["reboot"]) == (True, [], []), first
    assert Path(gpudirect.LOAD).read_text().splitlines()[1:] == ["ib_ipoib", "gdrdrv"]
    assert re.search(r"^\*\s+-\s+memlock\s+unlimited$", Path(gpudirect.LIMITS).read_text(), re.MULTILINE)
    assert "DefaultLimitMEMLOCK=infinity" in Path(gpudirect.MANAGER).read_text()
    assert did(root) == ["modprobe ib_ipoib", "modprobe gdrdrv"]
    again = configure(stack="inbox", modules=["ib_ipoib", "gdrdrv"])
    assert (again["changed"], len(did(root))) == (False, 2)
    write(root, {"BUILT_IN": "kernel/drivers/infiniband/core/ib-core.ko\n"})
    there = configure(stack="inbox", modules=["ib-ipoib", "ib_core"])
    assert (there["pending"], len(did(root))) == ([], 2)
    told = configure(stack="doca", modules=["nvidia_peermem"])["pending"]
    assert told == ["nvidia_peermem is not loaded: modprobe: ERROR: could not insert: Invalid argument"]


def test_peer_to_peer_dma_with_its_reboot_and_all_the_way_back(root, configure):
    cufile, options = Path(gpudirect.CUFILE), Path(gpudirect.OPTIONS)
    cufile.write_text(NVIDIA_S)
    Path(gpudirect.MULTIPATH).write_text("Y\n")
    (root / "PARAMS").write_text('RegistryDwords: ""\n')
    looked = configure(p2pdma=True, check=True)
    assert (looked["changed"], options.exists(), did(root)) == (True, False, [])
    first = configure(p2pdma=True)
    assert (first["changed"], len(first["reboot"])) == (True, 2), first
    assert "options nvme_core multipath=N" in options.read_text()
    assert did(root) == ["update-initramfs -u -k 6.8.0"]
    assert cufile.read_text() == NVIDIA_S.replace('"use_pci_p2pdma": false,', '"use_pci_p2pdma": true,')
    Path(gpudirect.MULTIPATH).write_text("N\n")
    (root / "PARAMS").write_text(f'RegistryDwords: "{gpudirect.REGISTRY}"\n')
    again = configure(p2pdma=True)
    assert (again["changed"], again["reboot"], len(did(root))) == (False, [], 1)
    assert (configure()["changed"], cufile.read_text(), options.exists()) == (True, NVIDIA_S, False)
    assert len(did(root)) == 2  # the initramfs forgets the options too
    assert configure()["changed"] is False


def test_a_name_that_is_no_module_and_settings_that_are_no_json_are_refused(configure):
    configure(stack="inbox", modules=["a b"], fails="GS-483")
    assert not Path(gpudirect.LIMITS).exists()
    assert gpudirect.switched_on("") == gpudirect.switched_on(None) is not None
    Path(gpudirect.CUFILE).write_text("properties: yes\n")
    configure(p2pdma=True, fails="GS-440")
