"""Python packages count in the download and in the room; what nobody measured is said and never guessed."""

import msgspec
import pytest

from gpusetup.cli.plan import plan_text
from gpusetup.components.python.size import DiskSpace, disk_space_of
from gpusetup.matrix.load import matrix
from gpusetup.model.plan import HostPlan, Plan, Preview, PreviewTransaction
from gpusetup.model.request import Requirement
from gpusetup.model.settings import Settings
from gpusetup.model.stack import MatrixStamp
from gpusetup.model.tables import WheelsFile
from tests.unit.plan.conftest import drafted

MEASURED = msgspec.convert(
    {
        "schema": "gpusetup/matrix-wheels/1",
        "date": "2026-11-23",
        "sources": {},
        "closures": [
            {"pin": pin, "arch": "x86_64", "python": "3.12", "wheels": wheels, "sources": [], "confidence": "observed"}
            for pin, wheels in {
                "frame==1": ["frame==1", "nvidia-cublas==13.0"],
                "Array[ctk]==2": ["array==2", "nvidia-cublas==13.1"],
            }.items()
        ],
        "sizes": {
            "x86_64": {
                "frame==1": [10, 30], "array==2": [1, 2],
                "nvidia-cublas==13.0": [100, 200], "nvidia-cublas==13.1": [110, 220],
            }
        },
    },
    WheelsFile,
)  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "room"),
    [
        ((), DiskSpace()),
        (("frame==1",), DiskSpace(110, 230)),
        (("frame==1", "Array[ctk]==2", "nvidia-nvjitlink<13.1"), DiskSpace(121, 252)),
        (("--extra-index-url https://x", "frame==1+cu130"), DiskSpace(0, 0, ("frame==1+cu130",))),
        (("frame==1 --hash=sha256:aa", "Array==2 --hash=sha256:bb", "other==3 --hash=sha256:cc"), DiskSpace(111, 232, ("other==3",))),
    ],
)  # fmt: skip
def test_what_lines_bring_is_counted_once(lines, room):
    assert disk_space_of(lines, "x86_64", MEASURED) == room
    assert disk_space_of(lines, "aarch64", MEASURED).download == 0


def planned(planner, facts, answer, *wishes):
    settings = Settings(requirements=wishes)
    draft = drafted(planner, facts, settings, answer)
    packages = PreviewTransaction(download_bytes=5_000_000)
    plan: HostPlan = planner.third(draft, Preview(transaction=packages))
    return plan


def told(plan):
    return plan_text(Plan(matrix=MatrixStamp(date="d", digest="x"), hosts={"a": plan}))


def test_measured_wheels_count_and_their_room_is_asked_for(planner, host, nvidia_ubuntu):
    wish = Requirement(component="cupy")
    plan = planned(planner, host("ubuntu24.04-h200-keep"), nvidia_ubuntu, wish)
    room = disk_space_of(plan.variables.gpu_python_requirements, "x86_64", matrix().wheels)
    assert room.unknown == ()
    assert room.installed > room.download > 10_000_000
    assert (plan.wheel_bytes, plan.package_bytes, plan.download_bytes) == (
        room.download,
        5_000_000,
        room.download + 5_000_000,
    )
    assert plan.variables.gpu_preflight_space_mb == {"/opt/gpusetup": -(-room.peak >> 20)}
    assert "of it Python packages" in told(plan)


def test_what_nobody_measured_is_said(planner, host, nvidia_ubuntu):
    wish = Requirement(component="torch", specifier="==2.6.*", variant="cu124")
    plan = planned(planner, host("ubuntu24.04-h200-keep"), nvidia_ubuntu, wish)
    assert plan.download_bytes is plan.wheel_bytes is None
    assert [text for text in plan.warnings if "the size of torch==2.6.0 is not known" in text]
    assert "5 MB of packages, and Python packages of unknown size" in told(plan)


def test_without_python_packages_all_is_as_it_was(planner, host, nvidia_ubuntu):
    facts = msgspec.structs.replace(host("ubuntu24.04-h200-keep"), driver=None)
    plan = planned(planner, facts, nvidia_ubuntu, Requirement(component="driver"))
    assert (plan.download_bytes, plan.wheel_bytes) == (5_000_000, 0)
    assert plan.variables.gpu_preflight_space_mb is msgspec.UNSET
    assert "  download 5 MB\n" in told(plan)
