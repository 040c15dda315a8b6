"""Every component is one record: nothing of a setting, a package, or a record is known in a second place."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from gpusetup.components.base import Wanted
from gpusetup.components.registry import COMPONENTS, GROUPS
from gpusetup.model.applied import SCHEMA, Applied
from gpusetup.model.package import Package, PackageSet
from gpusetup.model.settings import (
    AppliedWanted,
    DesktopsWish,
    Environment,
    Exporter,
    GpuDirect,
    ImexWish,
    MigLayout,
    Settings,
)
from gpusetup.model.stack import Stack
from gpusetup.model.variables import RoleVariables
from gpusetup.plan.settings import KNOWN
from gpusetup.plan.wanted import packed, unpacked

DERIVED = {"requirements", "hashed", "vgpu_token_sha256", "proxy"}
"""Settings that nobody writes: what follows from others, from the lock, or from the inventory."""


def test_every_setting_is_read_and_each_by_one() -> None:
    assert set(KNOWN) - {"components"} == set(Settings.__struct_fields__) - DERIVED
    owners = Counter(name for component in COMPONENTS for name in component.settings)
    assert [name for name, number in owners.items() if number > 1] == []


def test_every_group_of_packages_belongs_to_one() -> None:
    of_packages = {name for name, kind in PackageSet.__annotations__.items() if kind == "tuple[Package, ...]"}
    owners = [name for component in COMPONENTS for name in component.packages]
    assert sorted(owners) == sorted(of_packages)


def test_every_package_of_every_group_is_wanted() -> None:
    groups = {name: (Package(name=name),) for name in GROUPS}
    assert {package.name for package in PackageSet(manager="apt", **groups).wanted()} == set(GROUPS)


def test_a_group_goes_to_a_variable_of_the_roles() -> None:
    told = [group.variable for group in GROUPS.values() if group.variable]
    assert set(told) <= set(RoleVariables.__struct_fields__)
    assert len(told) == len(set(told))


WISHES = {
    "python": (Environment(name="serve", path="/opt/gpusetup-serve", stack=Stack(), requirements=("torch==2.6.0",)),),
    "rdma": GpuDirect(stack="inbox", modules=("ib_ipoib",)),
    "imex": ImexWish(nodes=("10.0.0.1", "10.0.0.2")),
    "desktops": DesktopsWish(users=("alice",)),
    "mig": (MigLayout(gpu="0000:01:00.0", enabled=True),),
    "monitoring": Exporter(kind="dcgm", dcgm="4.2.3"),
}


@pytest.mark.parametrize("parts", [{}, *({name: wish} for name, wish in WISHES.items()), WISHES], ids=" ".join)
def test_what_is_wanted_comes_back_from_the_record(parts: dict[str, Any]) -> None:
    wanted = Wanted(stack=Stack(), packages=None, settings=Settings(), manage_driver=False, parts=parts)
    kept = msgspec.json.decode(msgspec.json.encode(packed(wanted)), type=AppliedWanted)
    lock = Applied(schema=SCHEMA, key="k", stack=Stack(), wanted=kept)
    assert unpacked(lock, Settings()).parts == parts


def test_every_wish_on_record_is_tried_here() -> None:
    assert set(WISHES) == {component.name for component in COMPONENTS if component.kept}
