"""RDMA and GPUDirect in plans: how GPU memory is reached and why, packages, refusals, what changes."""

import hashlib

import pytest

from gpusetup.components.judge import gpudirect
from gpusetup.components.rdma import RDMA, Driver, memory_way, storage_way
from gpusetup.errors import PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import HostRecord, RecordedFile
from gpusetup.model.facts_machine import Rdma, Storage
from gpusetup.model.settings import GpuDirect
from tests.hosts.machines import changed
from tests.lab.repository import catalog
from tests.refusals import refused
from tests.unit.plan.conftest import answer, asked, changes, host, planner

NEW, OLD = "6.8.0-60-generic", "5.15.0-100-generic"
INBOX = [(name, "44.0-2") for name in matrix().rdma.packages[0].packages]
OPEN, CLOSED = Driver("580.95.05", "open"), Driver("580.95.05", "proprietary")
TABLE = matrix().rdma


def machine(kernel=NEW, **changes):
    return host("ubuntu24.04-h200-keep", kernel={"next": kernel}, **changes)


@pytest.mark.parametrize(
    ("kernel", "driver", "stack", "peer_memory", "way", "says"),
    [
        (NEW, OPEN, "inbox", None, "dma-buf", "open kernel modules 580.95.05 and kernel 6.8.0-60-generic"),
        (NEW, OPEN, "doca", True, "dma-buf", "no module is needed"),
        (NEW, CLOSED, "doca", None, "nvidia-peermem", "are the proprietary ones"),
        (NEW, CLOSED, "inbox", True, "nvidia-peermem", "are the proprietary ones"),
        (NEW, CLOSED, "inbox", False, "", "takes no nvidia_peermem"),
        ("4.18.0-553.el8.x86_64", OPEN, "doca", None, "nvidia-peermem", "is older than 5.12"),
        ("4.18.0-553.el8.x86_64", OPEN, "inbox", None, "", "is older than 5.12"),
        (NEW, Driver("510.47.03", "open"), "inbox", None, "", "driver 510.47.03 is older than 515"),
        (NEW, None, "inbox", None, "", "there is no driver"),
    ],
)
def test_dma_buf_comes_before_nvidia_peermem(kernel, driver, stack, peer_memory, way, says):
    facts = machine(kernel, rdma=Rdma(peer_memory=peer_memory))
    found = memory_way(facts, driver, "auto", stack, TABLE)
    assert (found.name, says in found.why) == (way, True), found.why


@pytest.mark.parametrize(
    ("asked", "driver", "stack", "hint"),
    [
        ("dma-buf", CLOSED, "doca", "use gpusetup_gpudirect=nvidia-peermem"),
        ("dma-buf", CLOSED, "inbox", "docs/guides/rdma.md"),
        ("nvidia-peermem", OPEN, "inbox", "use gpusetup_gpudirect=dma-buf"),
    ],
)
def test_a_way_that_is_asked_for_and_cannot_be_is_refused(asked, driver, stack, hint):
    with refused(PreflightError, "GS-382", hint=hint):
        memory_way(machine(), driver, asked, stack, TABLE)


def planned(offered=tuple(INBOX), facts=(), **wishes):
    facts = host("ubuntu24.04-h200-keep", driver=None, **dict(facts))
    return planner.second(facts, asked("driver", **wishes), answer(catalog.ubuntu(), *offered)).plan


@pytest.mark.parametrize(
    ("facts", "wish", "way", "says"),
    [
        (machine(), "auto", "p2pdma", "no module is needed"),
        (machine(OLD), "auto", "nvidia-fs", f"no P2PDMA, as kernel {OLD} is older than"),
        (machine(), "nvidia-fs", "nvidia-fs", "set by gpusetup_gds"),
        (machine(storage=Storage(p2pdma=True)), "auto", "p2pdma", "no module is needed"),
        (machine(storage=Storage(p2pdma=False)), "auto", "nvidia-fs", "is built without PCI peer-to-peer DMA"),
    ],
)
def test_files_come_by_p2pdma_before_nvidia_fs(facts, wish, way, says):
    found = storage_way(facts, OPEN, wish, True, TABLE)
    assert (found.name, says in found.why) == (way, True), found.why


def test_where_no_way_for_files_is_left_both_reasons_are_told():
    with refused(PreflightError, "GS-383", message="nvidia-fs needs the open kernel modules; no P2PDMA, as"):
        storage_way(machine(), CLOSED, "auto", True, TABLE)


def test_an_rdma_stack_without_an_adapter_is_told():
    told = "no adapter with RDMA is seen here"
    for adapter in (None, Rdma()):
        plan = planned(facts={"rdma": adapter}, rdma="inbox")
        assert any(told in text for text in plan.warnings) is (adapter is None)


def test_a_spark_has_no_gpudirect():
    spark = (changed(machine().gpus[0], name="GB10"),)
    with refused(PreflightError, "GS-382", message="GB10 has no GPUDirect"):
        planned(facts={"gpus": spark}, gdrcopy=True)


def test_storage_by_p2pdma_takes_a_reboot():
    plan = planned((), gds="auto")
    actions = {action.id: action for action in plan.actions}
    assert (plan.variables.gpu_rdma_p2pdma, plan.variables.gpu_rdma_stack) == (True, "none")
    assert (actions["module-p2pdma"].reboot, "file-cufile" in actions) == (True, True)


def test_gdrcopy_and_doca_come_from_where_the_site_has_them():
    names = ("gdrdrv-dkms", "libgdrapi", "doca-ofed", "nvidia-fs-dkms")
    plan = planned([(name, "2.5.1-1") for name in names], rdma="doca", gdrcopy=True, gds="nvidia-fs")
    assert {package.name for package in plan.variables.gpu_rdma_packages} >= set(names)
    assert plan.variables.gpu_rdma_modules == ("gdrdrv", "nvidia_fs")


@pytest.mark.parametrize(
    ("wishes", "reference", "says"),
    [
        ({"rdma": "doca"}, "GS-381", "gpusetup_rdma=doca needs doca-ofed"),
        ({"gdrcopy": True}, "GS-381", "gpusetup_gdrcopy needs gdrdrv-dkms, libgdrapi"),
        ({"gds": "nvidia-fs"}, "GS-383", "no repository here has nvidia-fs-dkms"),
        ({"ipoib": True}, "GS-384", "gpusetup_ipoib needs an RDMA stack"),
        ({"gpudirect": "dma-buf", "gds": "p2pdma"}, "GS-384", "gpusetup_rdma is none"),
        ({"gds": "p2pdma", "driver_options": {"NVreg_RegistryDwords": "a=1"}}, "GS-383", "gpusetup_driver_options does too"),
        ({"rdma": "inbox", "offered": INBOX, "facts": {"packages": {"installed": {"mlnx-ofed-kernel-dkms": "24.10"}}}},
         "GS-384", "mlnx-ofed-kernel-dkms 24.10"),  # two RDMA stacks
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_touched(wishes, reference, says):
    with refused(PreflightError, reference, message=says):
        planned(**{"offered": (), **wishes})


def test_what_is_there_changes_nothing_and_what_is_no_longer_asked_for_goes():
    setup = GpuDirect(stack="inbox", memory="dma-buf", storage="p2pdma", modules=("ib_ipoib",))
    ready = Storage(p2pdma=True, multipath=False, registry=gpudirect.REGISTRY, use_pci_p2pdma=True)
    texts = gpudirect.files(setup.stack, setup.modules, setup.storage == "p2pdma")
    digests = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items() if text is not None}
    record = HostRecord(files={path: RecordedFile(sha256=digest) for path, digest in digests.items()})
    facts = host("ubuntu24.04-h200-keep", state=record, storage=ready)
    assert changes(RDMA, facts, setup) == []
    (gone,) = changes(RDMA, facts)
    assert (gone.id, gone.reboot) == ("file-rdma", True)
    other = changed(setup, modules=("ib_ipoib", "gdrdrv"))
    assert [action.id for action in changes(RDMA, facts, other)] == ["module-rdma"]
    waiting = changed(ready, multipath=True)
    (action,) = changes(RDMA, changed(facts, storage=waiting), setup)
    assert (action.id, action.reboot) == ("module-p2pdma", True)
    assert changes(RDMA, host("ubuntu24.04-h200-keep")) == []
