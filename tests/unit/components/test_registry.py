"""Every component is one record, known in no second place."""

from gpusetup.components.registry import COMPONENTS
from gpusetup.model.package import Package, PackageSet
from gpusetup.model.settings import AppliedWanted, Settings
from gpusetup.plan.settings import KNOWN

DERIVED = {"requirements", "hashed", "vgpu_token_sha256", "proxy", "policy"}
"""Settings that nobody writes: what follows from others, from the lock, or from the inventory."""


def test_every_setting_group_of_packages_and_wish_on_record_is_of_one():
    assert set(KNOWN) - {"components"} == set(Settings.__struct_fields__) - DERIVED
    of_packages = {name for name, kind in PackageSet.__annotations__.items() if kind == tuple[Package, ...]}
    assert sorted(name for component in COMPONENTS for name in component.packages) == sorted(of_packages)
    kept = [component.kept for component in COMPONENTS if component.kept]
    of_the_stack = {"packages", "manage_driver", "requirements", "interpreter", "adopted", "services", "settings"}
    assert sorted(kept) == sorted(set(AppliedWanted.__struct_fields__) - of_the_stack)
