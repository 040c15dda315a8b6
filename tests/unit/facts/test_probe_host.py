"""Reading a machine, a folder that stands in for one, and remembering what was read."""

import os

import pytest

from gpusetup.content import host_code

package = host_code("gpu_probe.host")


@pytest.fixture
def root(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").symlink_to("../usr/lib/os-release")
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/os-release").write_text("ID=debian\n")
    (tmp_path / "lib").symlink_to("/usr/lib")
    return tmp_path


def test_links_are_followed_inside_the_root(root):
    host = package.FolderHost(str(root))
    assert host.read("/etc/os-release") == "ID=debian\n"
    assert host.read("/lib/os-release") == "ID=debian\n"
    assert host.names("/lib") == ["os-release"]
    assert host.kind("/lib") == "folder"


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../../../etc/passwd", "/proc/self/environ"])
def test_no_link_leads_out_of_the_root(root, target):
    (root / "etc/escape").symlink_to(target)
    (root / "outside").symlink_to("/")
    host = package.FolderHost(str(root))
    assert host.read("/etc/escape") is None
    assert host.read("/outside/etc/passwd") is None
    assert host.names("/outside/proc") == []


def test_a_ring_of_links_ends(root):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert package.FolderHost(str(root)).read("/a/file") is None


def test_a_folder_runs_no_command(root):
    host = package.FolderHost(str(root))
    assert host.run("anything", ["true"])["why"] == "missing"
    assert host.observe("anything", lambda: "looked at the real machine") is None


def test_what_may_not_be_read_is_noted_by_field(monkeypatch):
    def refuse(path, *_arguments, **_keywords):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(host_code("gpu_probe.host"), "open", refuse, raising=False)
    host = package.LiveHost()
    assert host.read("/boot/grub/grubenv", "kernel.next") is None
    assert host.unreadable == {"kernel.next": "/boot/grub/grubenv: Permission denied"}


def test_denied_in_a_capture_stays_denied(root):
    (root / "gpusetup-capture.json").write_text(
        '{"denied": {"/boot/grub/grubenv": "/boot/grub/grubenv: Permission denied"}}'
    )
    host = package.FolderHost(str(root))
    assert host.read("/boot/grub/grubenv", "kernel.next") is None
    assert host.unreadable == {"kernel.next": "/boot/grub/grubenv: Permission denied"}


def test_a_missing_file_is_no_complaint(root):
    host = package.FolderHost(str(root))
    assert host.read("/etc/none") is None
    assert host.value("/etc/none") is None
    assert host.names("/none") == []
    assert host.unreadable == {}


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


def test_a_recorder_remembers_files_links_folders_and_answers(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/one").write_text("keep me\ndrop me\n")
    (tmp_path / "d/two").write_text("")
    (tmp_path / "link").symlink_to("d/one")
    host = package.Recorder()
    base = str(tmp_path)
    assert host.names(base + "/d") == ["one", "two"]
    assert host.read(base + "/d/one", keep=lambda text: text.split("\n")[0]) == "keep me"
    assert host.link(base + "/link") == "d/one"
    assert host.observe("answer", lambda: 42) == 42
    assert host.files[base + "/d/one"] == b"keep me"
    assert host.files[base + "/d/two"] == b""
    assert host.links == {base + "/link": "d/one"}
    assert base + "/d" in host.folders
    assert host.answers == {"answer": 42}


def test_a_path_with_a_zero_byte_does_not_exist(root):
    for host in (package.LiveHost(), package.FolderHost(str(root))):
        assert (host.exists("/a\0"), host.link("/a\0"), host.names("/a\0"), host.read("/a\0")) == (
            False,
            None,
            [],
            None,
        )
