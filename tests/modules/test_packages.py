"""Package wishes, apt's and dnf's answers, locks, build logs, the Python environment's pins."""

import json
from types import SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    dkms,
    dnf,
    kernel_module,
    packages,
    planning,
    process,
    services,
    transaction,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.apt import Apt
from ansible_collections.gpusetup.stack.plugins.modules import gpu_packages

from tests.modules.rpm_host import wish
from tests.modules.stand_ins import refused, write
from tests.stored import stored, stored_rows


class TestWishes:
    def test_the_same_package_may_be_asked_for_twice_but_not_in_two_versions(self):
        assert packages.merge([wish("a", "1"), wish("b"), wish("a")]) == [wish("a", "1"), wish("b")]
        with refused("two versions"):
            packages.merge([wish("a", "1"), wish("a", "2")])

    @pytest.mark.parametrize(
        "bad",
        [*map(wish, ("-o", "a b", "a;b", "$(x)", "a\n")), *(wish("a", *more) for more in (["1;2"], ["--x y"], ["1\n"], ["1", "x;y"]))],
    )  # fmt: skip
    def test_what_is_no_name_or_version_never_reaches_a_command(self, bad):
        with refused("GS-461"):
            packages.merge([bad])

    def test_a_star_inside_a_version_is_a_wish(self):
        wanted = wish("libnccl2", "2.32.3-*+cuda13.4*")
        assert packages.merge([wanted]) == [wanted]
        assert packages.unmet([wanted], {"libnccl2": "2.32.3-1+cuda13.4"}) == []
        assert packages.unmet([wanted], {"libnccl2": "2.32.3-1+cuda12.9"}) == [wanted]

    def test_a_foreign_architecture_is_another_package(self):
        assert packages.unmet([wish("libc", "", "i386")], {"libc": "1"}) == [wish("libc", "", "i386")]
        assert packages.unmet([wish("libc", "", "i386")], {"libc:i386": "1"}) == []
        asked = {"packages": [wish("a", "", "amd64"), wish("b", "", "i386")], "remove": []}
        assert planning.wanted(asked, {}, "amd64") == ([wish("a"), wish("b", "", "i386")], [])

    @pytest.mark.parametrize(("name", "version", "driver", "is_stub"), stored_rows("transitional-packages.json"))
    def test_transitional_packages(self, name, version, driver, is_stub):
        assert (packages.stub(name, version, driver) is not None) is is_stub

    def test_a_removal_must_be_allowed_or_asked_for(self):
        assert packages.forbidden(["xorg", "nvidia-old", "x"], ["nvidia-*"], ["x"]) == ["xorg"]
        assert packages.forbidden(["x:i386", "y"], [], ["x:i386", "y:i686"]) == []
        came = {"dkms": "3", "gcc": "11"}  # what we brought for something that goes may go with it
        assert packages.forbidden(["dkms", "gcc", "vim"], [], ["kmod-nvidia-open-dkms"], came) == ["vim"]

    def test_what_is_not_offered_is_refused_with_the_nearest(self):
        versions = [{"version": version, "from": "x"} for version in ("580.95.05-1", "570.1-1")]
        host = SimpleNamespace(offered=lambda _names: {"driver": versions, "other": []})
        assert planning.resolve(host, [wish("driver", "570.*")]) == [wish("driver", "570.1-1")]
        with refused("offered: 580.95.05-1", "other 1 (not available)", "Err: 404"):
            planning.resolve(host, [wish("driver", "580.95.99-1"), wish("other", "1")], ["Err: 404"])
        assert planning.resolve(host, [wish("other", "1")], optional=True) == []


@pytest.mark.parametrize("there", [True, False])
def test_a_recorded_package_that_somebody_took_away_is_wanted_as_it_was_and_a_rehearsal_tells_it(
    run_module, tmp_path, monkeypatch, there
):
    driver, both = {"nvidia-driver": "535.1-1"}, {"nvidia-driver": "535.1-1", "nvidia-smi": "535.1-1"}
    record = {"packages": driver, "brought": both, "holds": list(both)}
    write(tmp_path, {"state.json": json.dumps(record)})
    installed = both if there else driver
    lost = planning.lost({"optional": False, "remove": []}, installed, record, [wish("nvidia-driver", "535.1-1")])
    assert lost == ([] if there else [wish("nvidia-smi", "535.1-1")])
    host = SimpleNamespace(installed=lambda: installed, held=list, architecture=lambda: "amd64")
    monkeypatch.setattr(planning, "manager", lambda *_a, **_k: host)
    given = {"host": {"state_dir": str(tmp_path)}, "manager": "apt", "packages": [wish("nvidia-driver", "535.1-1")]}
    result = run_module(gpu_packages, check=True, **given)
    assert result["changed"] is not there
    assert ("nvidia-smi 535.1-1" in result["diff"]["after"]) is not there


PLAN = stored("packages_plan.txt")
INSTALLED = "ii \tother\ti386\t2\nii \treplaced\tamd64\t4\nii \txserver-old\tall\t1.0\n"


@pytest.fixture
def says(monkeypatch):
    """Answer as apt-get, dpkg and what else was asked would: {the first word, or another: text}."""

    def answer(plan="", code=0, **more):
        answers = {"apt-get": plan, "dpkg-query": INSTALLED, "dpkg": "amd64\n", **more}
        known = lambda argv: next(answers[word] for word in (*argv[1:], argv[0]) if word in answers)  # noqa: E731
        monkeypatch.setattr(process, "output", lambda argv, *_a, **_k: (code, known(argv), ""))

    return answer


class TestApt:
    def test_the_plan_is_read_with_its_sizes(self, says):
        says(PLAN)
        assert Apt().simulate([wish("nvidia-smi")], []) == {
            "install": {"nvidia-smi": "580.1-1", "libcuda1:i386": "1:580.1-1"},
            "upgrade": {"libcuda1": ["535.1-1", "580.1-1"]},
            "downgrade": {"libnccl2": ["2.29-1", "2.28-1+cuda13"]},
            "remove": {"xserver-old": "1.0", "other:i386": "2", "replaced": "4"},
            "download_bytes": 1234, "disk_bytes": 95700000,
        }  # fmt: skip

    @pytest.mark.parametrize(
        "left_out", ["   libcuda1:i386 (1:580.1-1)\n", "1 upgraded, 2 newly", "   other:i386* (2)\n", " (1:580.1-1)"]
    )
    def test_a_plan_that_does_not_add_up_is_refused(self, says, left_out):
        says(PLAN.replace(left_out, ""))
        assert left_out in PLAN
        with refused("cannot read apt's plan"):
            Apt().simulate([wish("nvidia-smi")], [])

    def test_backports_do_not_win_because_they_are_newer(self, says):
        listed = (
            "headers | 6.12.95-1~bpo12+1 | http://x bookworm-backports/main amd64 Packages\n"
            "headers |  6.1.192-2 | http://x bookworm-security/main amd64 Packages\n"
        )
        policy = (
            "headers:\n  Installed: (none)\n  Candidate: 6.1.192-2\n  Version table:\n"
            "     6.12.95-1~bpo12+1 100\n        100 http://x bookworm-backports/main amd64 Packages\n"
            "     6.1.192-2 500\n        500 http://x bookworm-security/main amd64 Packages\n"
        )
        says(madison=listed, policy=policy)
        assert planning.resolve(Apt(), [wish("headers")]) == [wish("headers", "6.1.192-2")]
        assert planning.resolve(Apt(), [wish("headers", "6.12.*")]) == [wish("headers", "6.12.95-1~bpo12+1")]

    def test_why_apt_will_not_is_told(self, says):
        why = " nvidia : Depends: libcuda1 (= 1) but 2 is to be installed\nE: Unable to correct problems\n"
        says("The following packages have unmet dependencies:\n" + why, code=100)
        with refused("cannot install this set", "note: ", "Depends: libcuda1 (= 1)"):
            Apt().simulate([wish("nvidia")], [])

    def test_a_sites_own_certificate_authority_reaches_apt_and_dnf(self):
        network = {"proxy": "", "no_proxy": [], "ca_file": "/etc/site.pem"}
        assert "Acquire::https::CaInfo=/etc/site.pem" in Apt(network).options
        assert "--setopt=sslcacert=/etc/site.pem" in dnf.Dnf(network).plain

    def test_how_far_it_is(self):
        said = []
        host = Apt(tell=lambda *words: said.append(words))
        for line in (
            "dlstatus:1:20.4538:Retrieving file 1 of 3",
            "pmstatus:nvidia-smi:61.5385:Unpacking nvidia-smi (amd64)",
            "pmerror:nvidia-smi:61.5385:trouble",
            "pmstatus:nvidia-smi:no number:Unpacking",
        ):
            host._progress(line)
        assert said == [
            ("download", "Retrieving file 1 of 3", 20), ("install", "Unpacking nvidia-smi (amd64)", 61),
        ]  # fmt: skip

    def test_unattended_upgrades_match_whole_names(self):
        ((path, text),) = Apt().automatic_upgrades(["libstdc++6", "nvidia-smi:i386"]).items()
        assert path == "/etc/apt/apt.conf.d/52gpusetup-unattended-upgrades"
        assert '  "^libstdc\\+\\+6$";\n  "^nvidia-smi$";\n' in text


POLICY = stored("packages_policy.txt")
SHOW = "Package: nvidia-driver\nVersion: 580.95.05-1\nSize: 10\nSection: main\nDescription: a driver\n"


@pytest.mark.parametrize("broken", ["", "pkgnames", "policy", "show"])
def test_lists_that_cannot_be_read_are_no_empty_repository(monkeypatch, broken):
    answers = {"pkgnames": (0, "nvidia-driver\nbash\n", ""), "policy": (0, POLICY, ""), "show": (0, SHOW, "")}
    if broken:
        answers[broken] = (100, "", "E: The package lists or status file could not be parsed or opened.\n")
    monkeypatch.setattr(process, "output", lambda argv, *_more: next(answers[word] for word in argv if word in answers))
    if broken:
        with refused("GS-449", "could not be parsed"):
            Apt().matching(["nvidia-*"])
        return
    (offer,) = Apt().matching(["nvidia-*"])["nvidia-driver"]
    assert (offer["version"], offer["size"]) == ("580.95.05-1", 10)


class TestBuilds:
    LOG = (
        "DKMS make.log for nvidia-550.163.01 for kernel 6.12.107\n"
        "/var/lib/dkms/nvidia/build/nvidia/nv-pci.c:237:9: error: too few arguments to function 'pci_resize_resource'\n"
        "make[3]: *** [scripts/Makefile.build:249: nvidia/nv-pci.o] Error 1\n"
    )

    def test_only_a_fresh_log_counts_and_in_it_the_compilers_first_error(self, tmp_path):
        assert dkms.first_error("make: *** No rule to make target 'x'.  Stop.\n").startswith("make: ***")
        assert dkms.first_error("all is well\n") == ""
        log = tmp_path / "var/lib/dkms/nvidia/550.163.01/build/make.log"
        write(log.parent, {log.name: self.LOG})
        found = dkms.build_error(root=str(tmp_path))
        assert (found["log"], "pci_resize_resource" in found["error"]) == (str(log), True)
        assert dkms.build_error(since=log.stat().st_mtime + 60, root=str(tmp_path)) is None


@pytest.mark.parametrize("bad", [{"NVreg_X": "1\noptions evil"}, {"a b": 1}, {"x": "$(x)"}, {"x": "1\n"}])
def test_module_options_stay_on_their_line(bad):
    with refused():
        kernel_module.configuration(bad, [])


def test_unit_names_are_checked():
    for wrong in ("--now", "a\n"):
        with refused():
            services.full_name(wrong)


class TestLastWords:
    def test_whole_lines_each_once_and_the_last_ones_where_there_is_no_room_or_none_says_why(self):
        lines = ["Get:1 ok", "E: first", "E: first", *(f"E: {number} " + "x" * 350 for number in range(4))]
        told = transaction._last_words(lines)
        assert told.startswith("E: 2 ")
        assert [piece[:4] for piece in told.split(" | ")] == ["E: 2", "E: 3"]
        assert transaction._last_words(["one", "two"]) == "one | two"

    def test_dnf_5s_table_and_its_progress_are_no_reason(self):
        lines = [
            " nvidia-driver-cuda      x86_64 3:580.159.04-1.el9      nvidia-cuda     4.6 KiB",
            *(f" nvidia-{name}     x86_64 3:580.159.04-1.el9      nvidia-cuda     4.6 KiB" for name in range(5)),
            "[11/11] Installing nvidia-driver-cuda-3 100% |  19.0 KiB/s |   5.0 KiB |  00m00s",
            "Createrepo_c process exited with code 255",
        ]
        assert transaction._last_words(lines).endswith(" | Createrepo_c process exited with code 255")
        assert "[11/11]" not in transaction._last_words(lines)
        unmet = " nvidia-driver : Depends: nvidia-kernel-580 but it is not installable"
        assert transaction._last_words([unmet, *lines]) == unmet
