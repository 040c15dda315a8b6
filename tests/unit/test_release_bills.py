"""Bills of materials, of packages and of bundles: what CycloneDX's own schema takes, and what is really in there."""

import hashlib
import json
import zipfile
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from gpusetup.supply.cyclonedx import VERSION, bill, bill_of, component
from tools.release import bills

METADATA = """Metadata-Version: 2.4
Name: gpusetup
Version: 0.1.0
Requires-Dist: msgspec<1,>=0.19
Requires-Dist: tomli<3,>=2; python_version < "3.11"
Provides-Extra: runner
Requires-Dist: ansible-runner<3,>=2.4; extra == "runner"
"""
WHEEL = "gpusetup-0.1.0-py3-none-any.whl"


def valid(text):
    assert JsonStrictValidator(SchemaVersion.from_version(VERSION)).validate_str(text.decode()) is None
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_wheel_says_what_it_asks_for_and_that_nothing_of_it_is_inside(tmp_path):
    wheel = tmp_path / WHEEL
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("gpusetup-0.1.0.dist-info/METADATA", METADATA)
    found = valid(bills.write(wheel, bills.asked_by(wheel), 1_700_000_000, "0.1.0").read_bytes())
    assert found["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert found["metadata"]["component"]["purl"] == f"pkg:pypi/gpusetup@0.1.0?file_name={WHEEL}"
    told = {item["name"]: (item["scope"], "version" in item) for item in found["components"]}
    assert told == {"msgspec": ("required", False), "tomli": ("required", False), "ansible-runner": ("optional", False)}


def test_the_single_file_lists_its_wheels_by_their_digests(tmp_path):
    single = tmp_path / "gpusetup-x86_64.pyz"
    with zipfile.ZipFile(single, "w") as made:
        for name in (WHEEL, "rich-15.0.0-py3-none-any.whl"):
            made.writestr(f"wheels/{name}", name)
    found = valid(bills.write(single, bills.wheels_in(single), 1_700_000_000, "0.1.0").read_bytes())
    (rich,) = found["components"]
    assert rich["hashes"][0]["content"] == hashlib.sha256(b"rich-15.0.0-py3-none-any.whl").hexdigest()
    assert found["dependencies"] == [{"ref": found["metadata"]["component"]["bom-ref"], "dependsOn": [rich["bom-ref"]]}]


@pytest.mark.parametrize(
    ("name", "purl"),
    [
        ("gpusetup_0.1.0-1~py3.11_amd64.deb", "pkg:deb/debian/gpusetup@0.1.0-1~py3.11?arch=amd64"),
        ("gpusetup-0.1.0-1.py3.12.x86_64.rpm", "pkg:rpm/gpusetup@0.1.0-1.py3.12?arch=x86_64"),
        ("gpusetup-0.1.0.tar.gz", "pkg:pypi/gpusetup@0.1.0?file_name=gpusetup-0.1.0.tar.gz"),
        ("gpusetup-stack-0.1.0.tar.gz", "pkg:generic/gpusetup.stack@0.1.0?file_name=gpusetup-stack-0.1.0.tar.gz"),
        ("gpusetup-0.1.0-x86_64.oci.tar", "pkg:generic/gpusetup@0.1.0?file_name=gpusetup-0.1.0-x86_64.oci.tar"),
    ],
)
def test_every_kind_of_package_has_a_name_of_its_own(tmp_path, name, purl):
    (tmp_path / name).write_bytes(b"packed")
    found = valid(bills.write(tmp_path / name, [], 1_700_000_000, "0.1.0").read_bytes())
    assert found["metadata"]["component"]["purl"] == purl


def test_a_file_of_no_known_kind_gets_no_bill(tmp_path):
    (tmp_path / "notes.txt").write_text("no package")
    with pytest.raises(ValueError, match=r"notes\.txt"):
        bills.write(tmp_path / "notes.txt", [], 0, "0.1.0")


def test_the_bill_of_a_bundle_is_of_the_same_form(tmp_path):
    wheels = {"python/torch-2.6.0+cu124-cp312-cp312-linux_x86_64.whl": "a" * 64, f"controller/{WHEEL}": "b" * 64}
    found = valid(bill_of(tmp_path, {}, wheels, wheels))
    assert [item["name"] for item in found["components"]] == ["gpusetup", "torch"]
    driver = component("nvidia-open", "1:580.1", "pkg:rpm/rocky/nvidia-open@580.1?arch=x86_64&epoch=1", "c" * 64)
    assert valid(bill([driver, driver]))["components"] == [driver]
