"""RDMA and GPUDirect in plans: how GPU memory is reached and why, packages, refusals, what changes."""

import hashlib

import msgspec
import pytest

from gpusetup.components.base import Offers
from gpusetup.components.driver.sources import context_of
from gpusetup.components.judge import gpudirect
from gpusetup.components.rdma import RDMA, Driver, memory_way, storage_way
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import HostRecord, RecordedFile
from gpusetup.model.facts_machine import Rdma, Storage
from gpusetup.model.request import Requirement
from gpusetup.model.settings import GpuDirect, Settings
from gpusetup.model.stack import Stack
from gpusetup.plan.settings import read_level
from tests.unit.plan.conftest import answer, changes

_DRIVER = (Requirement(component="driver"),)
INBOX = [(name, "44.0-2") for name in matrix().rdma.packages[0].packages]
OPEN, CLOSED = Driver("580.95.05", "open"), Driver("580.95.05", "proprietary")
TABLE = matrix().rdma


def read(name, value):
    return read_level({f"gpusetup_{name}": value}, "host gpu1", prefix="gpusetup_")[name]


@pytest.mark.parametrize(
    ("name", "value", "becomes"),
    [("rdma", "inbox", "inbox"), ("gds", True, "auto"), ("gds", False, "none"), ("gds", "p2pdma", "p2pdma"),
     ("gpudirect", "nvidia-peermem", "nvidia-peermem"), ("gdrcopy", "yes", True), ("ipoib", False, False)],
)  # fmt: skip
def test_wishes_are_read(name, value, becomes):
    assert read(name, value) == becomes


@pytest.mark.parametrize(
    ("name", "value"),
    [("rdma", "ofed"), ("rdma", True), ("gds", "compat"), ("gpudirect", "peermem"), ("gdrcopy", "maybe"), ("ipoib", 3)],
)
def test_what_is_no_such_wish_is_refused(name, value):
    with pytest.raises(BadInputError) as caught:
        read(name, value)
    assert caught.value.reference == "GS-313"


def machine(host, kernel="6.8.0-60-generic", **changes):
    facts = host("ubuntu24.04-h200-keep", **changes)
    return msgspec.structs.replace(facts, kernel=msgspec.structs.replace(facts.kernel, next=kernel))


@pytest.mark.parametrize(
    ("kernel", "driver", "stack", "peer_memory", "way", "says"),
    [
        ("6.8.0-60-generic", OPEN, "inbox", None, "dma-buf", "open kernel modules 580.95.05 and kernel 6.8.0-60-generic"),
        ("6.8.0-60-generic", OPEN, "doca", True, "dma-buf", "no module is needed"),
        ("6.8.0-60-generic", CLOSED, "doca", None, "nvidia-peermem", "are the proprietary ones"),
        ("6.8.0-60-generic", CLOSED, "inbox", True, "nvidia-peermem", "are the proprietary ones"),
        ("6.8.0-60-generic", CLOSED, "inbox", False, "", "takes no nvidia_peermem"),
        ("4.18.0-553.el8.x86_64", OPEN, "doca", None, "nvidia-peermem", "is older than 5.12"),
        ("4.18.0-553.el8.x86_64", OPEN, "inbox", None, "", "is older than 5.12"),
        ("6.8.0-60-generic", Driver("510.47.03", "open"), "inbox", None, "", "driver 510.47.03 is older than 515"),
        ("6.8.0-60-generic", None, "inbox", None, "", "there is no driver"),
    ],
)  # fmt: skip
def test_dma_buf_comes_before_nvidia_peermem(host, kernel, driver, stack, peer_memory, way, says):
    facts = machine(host, kernel, rdma=Rdma(peer_memory=peer_memory))
    found = memory_way(facts, driver, "auto", stack, TABLE)
    assert found.name == way
    assert says in found.why


def test_a_spark_has_none_of_it(host):
    facts = machine(host)
    facts = msgspec.structs.replace(facts, gpus=(msgspec.structs.replace(facts.gpus[0], name="GB10"),))
    assert memory_way(facts, OPEN, "auto", "doca", TABLE).name == ""
    with pytest.raises(PreflightError) as caught:
        RDMA.wants(context_of(matrix().repos, facts, Settings(gdrcopy=True), Offers(None)), "apt", Stack(), matrix())
    assert (caught.value.reference, "GB10 has no GPUDirect" in caught.value.message) == ("GS-382", True)


@pytest.mark.parametrize(
    ("asked", "driver", "stack", "hint"),
    [
        ("dma-buf", CLOSED, "doca", "use gpusetup_gpudirect=nvidia-peermem"),
        ("dma-buf", CLOSED, "inbox", "docs/guides/rdma.md"),
        ("nvidia-peermem", OPEN, "inbox", "use gpusetup_gpudirect=dma-buf"),
    ],
)
def test_a_way_that_is_asked_for_and_cannot_be_is_refused(host, asked, driver, stack, hint):
    with pytest.raises(PreflightError) as caught:
        memory_way(machine(host), driver, asked, stack, TABLE)
    assert caught.value.reference == "GS-382"
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("kernel", "driver", "asked", "offered", "way"),
    [
        ("6.8.0-60-generic", OPEN, "auto", False, "p2pdma"),
        ("5.15.0-100-generic", OPEN, "auto", True, "nvidia-fs"),
        ("6.8.0-60-generic", Driver("550.90.07", "open"), "auto", True, "nvidia-fs"),
        ("6.8.0-60-generic", OPEN, "nvidia-fs", True, "nvidia-fs"),
        ("5.15.0-100-generic", OPEN, "p2pdma", True, "kernel 5.15.0-100-generic is older than 6.2"),
        ("6.8.0-60-generic", CLOSED, "auto", True, "nvidia-fs needs the open kernel modules; no P2PDMA, as"),
        ("5.15.0-100-generic", OPEN, "auto", False, "no repository here has nvidia-fs-dkms; no P2PDMA, as"),
    ],
)
def test_files_come_by_p2pdma_before_nvidia_fs(host, kernel, driver, asked, offered, way):
    if way in {"p2pdma", "nvidia-fs"}:
        assert storage_way(machine(host, kernel), driver, asked, offered, TABLE).name == way
        return
    with pytest.raises(PreflightError) as caught:
        storage_way(machine(host, kernel), driver, asked, offered, TABLE)
    assert caught.value.reference == "GS-383"
    assert way in caught.value.message


def test_a_kernel_built_without_it_and_a_product_that_is_not_named_have_no_p2pdma(host):
    facts = machine(host, storage=Storage(p2pdma=False))
    assert storage_way(facts, OPEN, "auto", True, TABLE).name == "nvidia-fs"
    gamers = machine(host, gpus=host("ubuntu24.04-rtx5090-open").gpus)
    assert "and not " in storage_way(gamers, OPEN, "auto", True, TABLE).why


def planned(host, planner, offered=tuple(INBOX), **wishes):
    from tests.lab.repository import catalog

    facts = host("ubuntu24.04-h200-keep", driver=None, **wishes.pop("facts", {}))
    settings = Settings(requirements=_DRIVER, **wishes)
    return planner.second(facts, settings, answer(catalog.ubuntu(), *offered)).plan


def test_a_plan_with_the_distribution_s_stack(host, planner):
    plan = planned(host, planner, rdma="inbox", ipoib=True)
    assert plan.refusals == ()
    assert [package.name for package in plan.variables.gpu_rdma_packages] == [name for name, _version in INBOX]
    assert plan.variables.gpu_rdma_modules == ("ib_ipoib",)
    assert (plan.variables.gpu_rdma_stack, plan.variables.gpu_rdma_p2pdma) == ("inbox", False)
    actions = {action.id: action for action in plan.actions}
    assert actions["module-rdma"].what == "ib_ipoib at every boot"
    assert "file-memlock" in actions
    assert "perftest" in actions["install-rdma"].what
    assert any(item.rule == "dma-buf-before-peermem" and "DMA-BUF" in item.text for item in plan.reasons)
    assert plan.lock.wanted.gpudirect == GpuDirect(stack="inbox", memory="dma-buf", modules=("ib_ipoib",))
    assert any("no adapter with RDMA is seen here" in text for text in plan.warnings)
    assert not set(plan.holds) & {name for name, _version in INBOX}  # their security updates must come


def test_storage_by_p2pdma_takes_a_reboot(host, planner):
    plan = planned(host, planner, (), gds="auto")
    actions = {action.id: action for action in plan.actions}
    assert (plan.variables.gpu_rdma_p2pdma, plan.variables.gpu_rdma_stack) == (True, "none")
    assert (actions["module-p2pdma"].reboot, "file-cufile" in actions) == (True, True)


def test_gdrcopy_and_doca_come_from_where_the_site_has_them(host, planner):
    offered = (
        ("gdrdrv-dkms", "2.5.1-1"),
        ("libgdrapi", "2.5.1-1"),
        ("doca-ofed", "3.2.0"),
        ("nvidia-fs-dkms", "2.28.4-1"),
    )
    plan = planned(host, planner, offered, rdma="doca", gdrcopy=True, gds="nvidia-fs")
    assert {package.name for package in plan.variables.gpu_rdma_packages} >= {name for name, _version in offered}
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
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_touched(host, planner, wishes, reference, says):
    with pytest.raises(PreflightError) as caught:
        planned(host, planner, (), **wishes)
    assert caught.value.reference == reference
    assert says in caught.value.message


def test_two_rdma_stacks_are_refused(host, planner):
    facts = host("ubuntu24.04-h200-keep")
    installed = facts.packages.installed | {"mlnx-ofed-kernel-dkms": "24.10"}
    packages = msgspec.structs.replace(facts.packages, installed=installed)
    with pytest.raises(PreflightError) as caught:
        planned(host, planner, rdma="inbox", facts={"packages": packages})
    assert (caught.value.reference, "mlnx-ofed-kernel-dkms 24.10" in caught.value.message) == ("GS-384", True)


def recorded(setup):
    texts = gpudirect.files(setup.stack, setup.modules, setup.storage == "p2pdma")
    there = {path: text for path, text in texts.items() if text is not None}
    digests = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in there.items()}
    return HostRecord(files={path: RecordedFile(sha256=digest) for path, digest in digests.items()})


def test_what_is_there_changes_nothing_and_what_is_no_longer_asked_for_goes(host):
    setup = GpuDirect(stack="inbox", memory="dma-buf", storage="p2pdma", modules=("ib_ipoib",))
    ready = Storage(p2pdma=True, multipath=False, registry=gpudirect.REGISTRY, use_pci_p2pdma=True)
    facts = host("ubuntu24.04-h200-keep", state=recorded(setup), storage=ready)
    assert changes(RDMA, facts, setup) == []
    (gone,) = changes(RDMA, facts)
    assert (gone.id, gone.reboot) == ("file-rdma", True)
    other = msgspec.structs.replace(setup, modules=("ib_ipoib", "gdrdrv"))
    assert [action.id for action in changes(RDMA, facts, other)] == ["module-rdma"]
    waiting = msgspec.structs.replace(ready, multipath=True)
    (action,) = changes(RDMA, msgspec.structs.replace(facts, storage=waiting), setup)
    assert (action.id, action.reboot) == ("module-p2pdma", True)
    assert changes(RDMA, host("ubuntu24.04-h200-keep")) == []
