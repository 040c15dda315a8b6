"""What people install: manual pages, a single file that starts or says why not, bills of materials that name what is there."""

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from gpusetup import __version__
from gpusetup.cli.commands import COMMANDS
from gpusetup.model import toml
from gpusetup_fleet.supply.cyclonedx import VERSION, bill, bill_of, component
from tools.release import bills, man, single, starter
from tools.release.tree import Target, without_origin

THIS = "{}.{}".format(*sys.version_info[:2])


def test_every_command_has_a_page_with_its_options():
    pages = man.pages()
    assert set(pages) == {"gpusetup.1", *(f"gpusetup-{name.replace(' ', '-')}.1" for name in COMMANDS)}
    assert r"\fB\-\-max\-fail N\fR" in pages["gpusetup-apply.1"]
    assert "SUPPRESS" not in "".join(pages.values())
    assert "%(" not in "".join(pages.values())


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_troff_has_nothing_to_say_against_a_page():
    for name, text in man.pages().items():
        argv = ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z"]
        done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), name


def test_both_packages_have_one_version():
    told = toml((Path(__file__).parents[2] / "gpusetup_fleet/pyproject.toml").read_text())["project"]
    assert (told["version"], told["dependencies"]) == (__version__, [f"gpusetup=={__version__}"])


def wheel(folder, name, content):
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in content.items():
            archive.writestr(zipfile.ZipInfo(place), text)
    return path


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A single file around a gpusetup that says how it was started."""
    told = "import sys\nprint(sys.prefix, sys.argv[1:])\n"
    made = wheel(tmp_path, "gpusetup", {"gpusetup/__init__.py": "", "gpusetup/__main__.py": told})
    monkeypatch.setattr(single, "_wheels", lambda _folder, _wheel, _target: [made])

    def build(python, out="one"):
        place = tmp_path / out
        place.mkdir()
        return single.build(made, place, [Target(python, "amd64")], moment=1_700_000_000)

    return build


def started(path, home, *words):
    argv = [sys.executable, str(path), *words]
    return subprocess.run(argv, env={"HOME": str(home)}, capture_output=True, text=True, check=False)


def test_the_single_file_makes_its_environment_once_and_passes_words_on(built, tmp_path):
    path = built(THIS)
    first = started(path, tmp_path, "matrix", "torch 2.6")
    assert first.stdout.endswith("['matrix', 'torch 2.6']\n"), first.stderr
    (home,) = (tmp_path / ".cache/gpusetup").iterdir()
    assert first.stdout.startswith(str(home))
    marker = home / "kept"
    marker.touch()
    assert started(path, tmp_path).returncode == 0
    assert marker.exists()


def test_another_python_is_told_which_ones_it_is_for(built, tmp_path):
    done = started(built("3.9"), tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"gpusetup: this file is for Python 3.9 on x86_64; this is Python {THIS} on ")
    assert not (tmp_path / ".cache").exists()


def test_a_start_that_is_cut_leaves_nothing_that_looks_whole(built, tmp_path, monkeypatch):
    path = built(THIS)
    monkeypatch.setattr(starter.Path, "symlink_to", lambda *_words: (_ for _ in ()).throw(KeyboardInterrupt))
    with zipfile.ZipFile(path) as archive:
        wheels = json.loads(archive.read("manifest.json"))["wheels"][THIS]
        with pytest.raises(KeyboardInterrupt):
            starter.environment(archive, wheels, tmp_path / "cache" / "single")
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_same_content_gives_the_same_bytes(built):
    assert built(THIS).read_bytes() == built(THIS, "two").read_bytes()


def test_a_package_forgets_the_folder_that_it_was_built_in_also_in_its_record(tmp_path):
    folder = tmp_path / "gpusetup-1.dist-info"
    folder.mkdir()
    (folder / "direct_url.json").write_text('{"url": "file:///tmp/xyz"}')
    lines = ["gpusetup/a.py,sha256=1,1\n", "gpusetup-1.dist-info/direct_url.json,sha256=2,2\n", "x,,\n"]
    (folder / "RECORD").write_text("".join(lines))
    without_origin(tmp_path)
    assert [path.name for path in folder.iterdir()] == ["RECORD"]
    assert (folder / "RECORD").read_text() == lines[0] + lines[2]


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
