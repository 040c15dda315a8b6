"""Reading a machine, a folder that stands in for one, and remembering what was read."""

import json
import os

import pytest

from gpusetup.content import host_code

package = host_code("gpu_probe.host")


@pytest.fixture
def root(machine):
    machine.link("/etc/os-release", "../usr/lib/os-release").put("/usr/lib/os-release", "ID=debian\n")
    return machine.link("/lib", "/usr/lib")


def test_links_are_followed_inside_the_root(root):
    host = root.host()
    assert host.read("/etc/os-release") == host.read("/lib/os-release") == "ID=debian\n"
    assert (host.names("/lib"), host.kind("/lib")) == (["os-release"], "folder")


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../../../etc/passwd", "/proc/self/environ"])
def test_no_link_leads_out_of_the_root(root, target):
    host = root.link("/etc/escape", target).link("/outside", "/").host()
    assert (host.read("/etc/escape"), host.read("/outside/etc/passwd"), host.names("/outside/proc")) == (None, None, [])


def test_a_ring_of_links_ends_and_a_folder_runs_no_command(root):
    host = root.link("/a", "b").link("/b", "a").host()
    assert host.read("/a/file") is None
    assert host.run("anything", ["true"])["why"] == "missing"
    assert host.observe("anything", lambda: "looked at the real machine") is None


def test_denied_in_a_capture_stays_denied(root):
    denied = {"/boot/grub/grubenv": "/boot/grub/grubenv: Permission denied"}
    root.put("/gpusetup-capture.json", json.dumps({"denied": denied}))
    host = package.FolderHost(str(root.root))
    assert host.read("/boot/grub/grubenv", "kernel.next") is None
    assert host.unreadable == {"kernel.next": denied["/boot/grub/grubenv"]}


def test_a_missing_file_is_no_complaint(root):
    host = root.host()
    assert (host.read("/etc/none"), host.value("/etc/none"), host.names("/none"), host.unreadable) == (
        None,
        None,
        [],
        {},
    )


def test_what_may_not_be_read_is_noted_by_field(monkeypatch):
    def refuse(path, *_arguments, **_keywords):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(host_code("gpu_probe.host"), "open", refuse, raising=False)
    host = package.LiveHost()
    assert host.read("/boot/grub/grubenv", "kernel.next") is None
    assert host.unreadable == {"kernel.next": "/boot/grub/grubenv: Permission denied"}


def test_small_kernel_files_are_read_live():
    assert package.LiveHost().value("/proc/sys/kernel/random/boot_id")


def test_a_pipe_that_nobody_writes_to_is_empty(tmp_path):
    os.mkfifo(str(tmp_path / "1.ref"))
    writer = os.open(str(tmp_path / "1.ref"), os.O_RDWR)
    assert package.LiveHost().read(str(tmp_path / "1.ref")) == ""
    os.close(writer)


def test_a_huge_file_is_read_up_to_the_limit(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 300_000)
    assert len(package.LiveHost().read_bytes(str(tmp_path / "big"), limit=100_000)) == 100_000


def test_a_recorder_remembers_files_links_folders_and_answers(machine):
    machine.put("/d/one", "keep me\ndrop me\n").put("/d/two").link("/link", "d/one")
    host, base = package.Recorder(), str(machine.root)
    assert host.names(base + "/d") == ["one", "two"]
    assert host.read(base + "/d/one", keep=lambda text: text.split("\n")[0]) == "keep me"
    assert host.link(base + "/link") == "d/one"
    assert host.observe("answer", lambda: 42) == 42
    assert (host.files[base + "/d/one"], host.files[base + "/d/two"]) == (b"keep me", b"")
    assert (host.links, host.answers) == ({base + "/link": "d/one"}, {"answer": 42})
    assert base + "/d" in host.folders


def test_a_path_with_a_zero_byte_does_not_exist(root):
    for host in (package.LiveHost(), root.host()):
        found = [host.exists("/a\0"), host.link("/a\0"), host.names("/a\0"), host.read("/a\0")]
        assert found == [False, None, [], None]
