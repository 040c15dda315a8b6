"""dnf as the roles drive it: what it says, in both its generations."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import dnf, packages
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import versions

from tests.modules.rpm_host import wish
from tests.modules.stand_ins import write
from tests.stored import stored, stored_rows


@pytest.mark.parametrize(("name", "plan"), stored_rows("packages_dnf_plans.json"))
def test_the_table_of_dnf_is_read(name, plan):
    assert dnf.parse(stored(name), "x86_64") == plan


@pytest.fixture(autouse=True)
def _architecture(monkeypatch):
    monkeypatch.setattr(dnf.Dnf, "architecture", lambda _self: "x86_64")


def test_a_newer_dnf_5_tells_the_replaced_version_on_the_same_line():
    text = "Upgrading:\n nv noarch <- x86_64 0:2-1 <- 0:1-1 cuda <- t 80.0 KiB\n nw x86_64 2-1   <- 1-1 cuda 1.0 KiB\n"
    assert dnf.parse(text, "x86_64")["upgrade"] == {"nv": ["", "0:2-1"], "nw": ["", "2-1"]}


def test_kernels_side_by_side_and_a_foreign_architecture_are_told_apart(monkeypatch):
    rows = (
        "kernel-devel\t0:5.14.0-1.el9\tx86_64\nkernel-devel\t0:5.14.0-2.el9\tx86_64\n"
        "nvidia-driver-libs\t3:580.1-1.el9\tx86_64\nnvidia-driver-libs\t3:580.1-1.el9\ti686\ntzdata\t0:1-1\tnoarch\n"
    )
    monkeypatch.setattr(dnf.process, "output", lambda *_a, **_k: (0, rows, ""))
    host = dnf.Dnf()
    installed = host.installed()
    assert installed == {
        **{f"kernel-devel-5.14.0-{number}.el9": f"0:5.14.0-{number}.el9" for number in (1, 2)},
        **dict.fromkeys(("nvidia-driver-libs", "nvidia-driver-libs:i686"), "3:580.1-1.el9"), "tzdata": "0:1-1",
    }  # fmt: skip
    asked = [wish("kernel-devel", "5.14.0-1.el9"), wish("kernel-devel"), wish("kernel-devel", "5.14.0-9.el9")]
    assert packages.unmet(asked, installed) == asked[2:]
    assert versions.version_of(installed, "kernel-devel", "0:5.14.0-1.el9") == "0:5.14.0-1.el9"
    assert versions.version_of(installed, "kernel") is None
    assert {host.lock_name(*item) for item in installed.items()} == {"kernel-devel", "nvidia-driver-libs", "tzdata"}
    again = [packages.listed(*item) for item in installed.items()]
    assert host.words(again)[:4] == [
        "kernel-devel-5.14.0-1.el9", "kernel-devel-5.14.0-2.el9", "nvidia-driver-libs-3:580.1-1.el9",
        "nvidia-driver-libs-3:580.1-1.el9.i686",
    ]  # fmt: skip


def test_dnf_5s_locks_go_without_what_somebody_excludes(monkeypatch, tmp_path):
    entry = '[[packages]]\nname = "{}"\ncomment = "x"\n\n[[packages.conditions]]\nkey = "evr"\ncomparator = "{}"\nvalue = "0:1-1"\n\n'
    theirs, ours, other = (entry.format(*words) for words in (("nv", "!="), ("nv", "="), ("nw", "=")))
    write(tmp_path, {"versionlock.toml": f'version = "1.0"\n\n{theirs}{ours}{other}'})
    said = []
    monkeypatch.setattr(dnf.probe_packages, "TOML", f"{tmp_path}/versionlock.toml")
    monkeypatch.setattr(dnf.process, "output", lambda argv, *_a: said.append(argv) or (0, "", ""))
    dnf.Dnf().unhold(["nv", "nw"])
    assert (tmp_path / "versionlock.toml").read_text() == f'version = "1.0"\n\n{theirs}{other}'
    assert said[-1][-2:] == ["delete", "nw"], "dnf deletes every entry of a name"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("  Upgrading        : nv-2-1.el9.noarch       1/2 ", ("install", "Upgrading nv-2-1.el9.noarch", 50)),
        ("(1/4): nv-2-1.el9.noarch.rpm   5.4 kB", ("download", "nv-2-1.el9.noarch.rpm", 25)),
        ("[3/5] Upgrading nv-0:2-1.el9.noarch     100% |   6.1 KiB/s", ("install", "Upgrading nv-0:2-1.el9.noarch", 60)),
        ("[1/2] nv-0:2-1.el9.noarch       100% | 671.0 KiB/s |", ("download", "nv-0:2-1.el9.noarch", 50)),
        ("[ 5/10] Installing dkms-0:3.0.10-1.el9. 100% |   1.7 MiB/s |", ("install", "Installing dkms-0:3.0.10-1.el9.", 50)),
    ],
)  # fmt: skip
def test_how_far_dnf_is(line, told):
    said = []
    dnf.Dnf(tell=lambda *words: said.append(words))._line(line)
    assert said == [told]


@pytest.mark.parametrize(
    ("generation", "text", "stream"),
    [
        (4, "[nv]\nname=nv\nstream=580-open\nprofiles=\nstate=enabled\n", "580-open"),
        (4, "[nv]\nname=nv\nstream=\nprofiles=\nstate=\n", None),
        (5, '[modules.nvx]\nstate = "Enabled"\n[modules.nv]\nenabled_stream = "580-open"\nstate = "Enabled"\n', "580-open"),
        (5, '[modules.nv]\nenabled_stream = ""\nstate = "Available"\n[modules.nvx]\nstate = "Enabled"\n', None),
        (5, None, None),
    ],
)  # fmt: skip
def test_which_stream_is_enabled_by_the_files_of_both_generations(monkeypatch, tmp_path, generation, text, stream):
    path = tmp_path / ("nv.module" if generation == 4 else "modules.toml")
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(dnf, "_MODULES4", str(tmp_path))
    monkeypatch.setattr(dnf, "_MODULES5", str(path))
    monkeypatch.setattr(dnf.Dnf, "_is_dnf5", lambda _self: generation == 5)
    assert dnf.Dnf().enabled_stream("nv") == stream
