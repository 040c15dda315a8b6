"""Texts of others need not be UTF-8, and the host's locale need not know our letters."""

import os

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import apt, files, gpu_users, zypper

WORDS = ascii("für …")
LATIN = "# für alle\n".encode("latin-1")


def test_files_in_another_encoding_are_read(tmp_path, monkeypatch):
    file = tmp_path / "1/comm"
    (tmp_path / "1/fd").mkdir(parents=True)
    (tmp_path / "1/fd/3").symlink_to("/dev/nvidia0")
    file.write_bytes(LATIN)
    monkeypatch.setattr(gpu_users, "PROC", str(tmp_path))
    assert [pid for pid, _name in gpu_users._holders(["0"])] == [1]
    os.mkfifo(tmp_path / "pipe")
    assert files.read_bytes(str(tmp_path / "pipe")) == b"", "nothing waits for a pipe"
    file.write_bytes(LATIN + b"[main]\n")
    monkeypatch.setattr(apt, "_PREFERENCES", str(file))
    monkeypatch.setattr(zypper, "CONFIGURATION", [str(file)])
    pins = apt.Apt(together="580")
    with zypper.Zypper()._past_locks() as env, open(env["ZYPP_CONF"], "rb") as own, open(str(pins.pins), "rb") as text:
        assert own.read().startswith(LATIN)
        assert LATIN in text.read()
    pins.close()
