"""Desktops of a host; systemctl and the VNC servers are stand-ins."""

import contextlib
import os
import pwd
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import desktops, ports, systemd
from ansible_collections.gpusetup.stack.plugins.modules import gpu_desktops

from tests.modules.gpu_host_stand_in import SYSTEMCTL

ME = pwd.getpwuid(os.getuid()).pw_name
UNIT, PAGE = desktops.unit_of(ME), desktops.page_of(ME)


@contextlib.contextmanager
def serving(greeting):
    """Greet whoever connects. The thread ends first: it could still accept on the number of a socket that is closed."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        with contextlib.suppress(OSError):
            while True:
                with listener.accept()[0] as stream:
                    stream.sendall(greeting)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


@pytest.fixture
def root(tmp_path, monkeypatch):
    for folder in ("bin", "units"):
        (tmp_path / folder).mkdir()
    (tmp_path / "did").write_text("")
    for name, text in (
        ("systemctl", SYSTEMCTL),
        ("tigervncpasswd", '#!/bin/sh\nread -r word; echo "scrambled-$word"\n'),
        ("udevadm", '#!/bin/sh\necho udevadm "$@" >>"$STAND_IN_ROOT/did"\n'),
        ("startxfce4", "#!/bin/sh\n"),
    ):  # fmt: skip
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_ROOT", str(tmp_path))
    for name in ("SYSTEMD", "FOLDER", "LAUNCHER", "XORG", "UDEV", "MODPROBE"):
        monkeypatch.setattr(desktops, name, f"{tmp_path}{getattr(desktops, name)}")
    monkeypatch.setattr(desktops, "_PATIENCE", 1.0)
    monkeypatch.setattr(desktops, "DRM", f"{tmp_path}/sys/class/drm/*/device/driver")
    monkeypatch.setattr(desktops, "DEVICES", f"{tmp_path}/dev/dri")
    monkeypatch.setattr(systemd, "FOLDER", desktops.SYSTEMD)
    monkeypatch.setattr(ports, "listeners", lambda _place: [])
    return tmp_path


@pytest.fixture
def port(monkeypatch):
    with serving(b"RFB 003.008\n") as number:
        monkeypatch.setattr(desktops, "_VNC_PORT", number)
        yield number


@pytest.fixture
def configure(root, run_module):
    def call(backend="egl", **more):
        arguments = {"users": [ME]} | more if backend != "none" else more
        answer: tuple[bool, dict[str, Any]] = run_module(
            gpu_desktops, host={"state_dir": str(root / "state")}, backend=backend, **arguments
        )
        return answer

    return call


def did(root):
    return [line for line in (root / "did").read_text().splitlines() if not line.startswith("show")]


def test_a_desktop_a_page_and_a_password_of_one_s_own(root, port, configure):
    failed, result = configure(port=port)
    assert (failed, result["changed"]) == (False, True), result
    unit = Path(desktops.SYSTEMD, UNIT).read_text()
    assert f"User={ME}\n" in unit
    assert "VGL_DISPLAY=egl0" in unit
    assert f"127.0.0.1:{port} 127.0.0.1:{port}" in Path(desktops.SYSTEMD, PAGE).read_text()
    secret, told = (Path(desktops.FOLDER, f"{ME}.{kind}") for kind in ("vnc", "password"))
    word = told.read_text().strip()
    assert len(word) == 8
    assert secret.read_text() == f"scrambled-{word}\n"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (secret, told)} == {0o600}
    assert word not in str(result)
    assert f"enable --now {UNIT}" in did(root)
    assert f"enable --now {PAGE}" in did(root)

    again = configure(port=port)[1]
    assert Path(desktops.FOLDER, f"{ME}.password").read_text().strip() == word
    assert again["pending"] == []


def test_everything_goes_again(root, port, configure):
    configure(port=port)
    assert configure("none")[1]["changed"] is True
    assert [str(path) for path in (root / "etc").rglob("*") if path.is_file()] == []
    assert not Path(desktops.LAUNCHER).exists()
    assert configure("none")[1]["changed"] is False


def test_check_mode_touches_nothing(root, configure):
    failed, result = configure(check=True)
    assert (failed, result["changed"]) == (False, True), result
    assert not (root / "etc").exists()
    assert did(root) == []


def test_only_a_group_and_a_server_without_a_screen_where_that_is_asked_for(root, port, configure):
    for path in ("sys/class/drm/card0/device", "dev/dri/card0", "drivers/nvidia"):
        (root / path).mkdir(parents=True)
    (root / "sys/class/drm/card0/device/driver").symlink_to(root / "drivers/nvidia")
    failed, result = configure(
        "x", port=port, group="daemon", gpus=["0000:0a:00.0", "0001:06:10.1"], size="800x600", session="startxfce4"
    )
    assert not failed, result
    text = Path(desktops.XORG).read_text()
    assert 'BusID "PCI:10@0:0:0"' in text
    assert 'BusID "PCI:6@1:16:1"' in text
    unit = Path(desktops.SYSTEMD, UNIT).read_text()
    assert "SupplementaryGroups=daemon\n" in unit
    assert "SIZE=800x600 VGL_DISPLAY=:19.0" in unit
    assert "SESSION=startxfce4" in unit
    assert f"enable --now {desktops.X_UNIT}" in did(root)
    assert 'GROUP="daemon"' in Path(desktops.UDEV).read_text()
    assert "NVreg_DeviceFileGID=1 " in Path(desktops.MODPROBE).read_text()
    assert "udevadm control --reload" in did(root)
    assert configure(port=port)[1]["changed"] is True
    assert not Path(desktops.UDEV).exists()
    assert not Path(desktops.SYSTEMD, desktops.X_UNIT).exists()


def test_others_come_over_tls_alone(root, port, configure):
    certificate, key = root / "a.crt", root / "a.key"
    for path in (certificate, key):
        path.write_text("x")
        path.chmod(0o600)
    failed, result = configure(port=port, listen="0.0.0.0", certificate=str(certificate), key=str(key))
    assert not failed, result
    page = Path(desktops.SYSTEMD, PAGE).read_text()
    assert f"LoadCredential=key:{key}\n" in page
    assert "--ssl-only --cert ${CREDENTIALS_DIRECTORY}/certificate" in page
    key.chmod(0o644)
    failed, result = configure(port=port, listen="0.0.0.0", certificate=str(certificate), key=str(key))
    assert (failed, "can be read by everybody" in result["msg"]) == (True, True)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"users": ["nobody-of-that-name"]}, "there is no user nobody-of-that-name"),
        ({"session": "no-such-desktop"}, "no-such-desktop is not on this host"),
        ({"group": "no-such-group"}, "there is no group no-such-group"),
        ({"certificate": "/nowhere.crt", "key": "/nowhere.key"}, "/nowhere.crt is not on this host"),
        ({"backend": "x"}, "an X server needs a GPU"),
    ],
)
def test_what_is_in_the_way_is_refused_untouched(root, configure, asked, said):
    failed, result = configure(**asked)
    assert failed
    assert result["gpu_failure"]["reference"] == "GS-460"
    assert said in result["msg"]
    assert not (root / "etc").exists()
    assert did(root) == []


def test_a_port_in_use_is_told(monkeypatch):
    monkeypatch.setattr(
        ports, "listeners", lambda place: [ports.Listener(7, "nginx", "nginx.service")] if "6080" in place else []
    )
    told = {"users": [ME], "listen": "127.0.0.1", "port": 6080, "backend": "egl"}
    (failure,) = desktops.in_the_way({"desktops": told})
    assert "127.0.0.1:6080 is in use by nginx (process 7, nginx.service)" in failure.text()
    assert desktops.in_the_way({"desktops": {"users": []}}) == []


def test_a_desktop_that_does_not_come_up_fails_with_its_journal(root, monkeypatch, configure):
    with serving(b"HTTP") as number:
        monkeypatch.setattr(desktops, "_VNC_PORT", number)
        failed, result = configure()
    assert failed
    assert result["gpu_failure"]["reference"] == "GS-488"
    assert "something else answers" in result["msg"]
