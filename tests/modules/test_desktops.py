"""Desktops of a host; systemctl and the VNC servers are stand-ins."""

import contextlib
import os
import pwd
import socket
import stat
import threading
from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import desktops, ports
from ansible_collections.gpusetup.stack.plugins.modules import gpu_desktops

from tests.modules.gpu_host_stand_in import Units
from tests.modules.stand_ins import below, write

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
def host(tmp_path, monkeypatch):
    made = Units(tmp_path, monkeypatch, {
        "tigervncpasswd": '#!/bin/sh\nread -r word; echo "scrambled-$word"\n', "startxfce4": "#!/bin/sh\n",
        "udevadm": '#!/bin/sh\necho udevadm "$@" >>"$STAND_IN_ROOT/did"\n',
    })  # fmt: skip
    below(tmp_path, monkeypatch, {desktops: "SYSTEMD FOLDER LAUNCHER XORG UDEV MODPROBE DRM DEVICES"})
    monkeypatch.setattr(desktops, "_PATIENCE", 1.0)
    monkeypatch.setattr(ports, "listeners", lambda _place: [])
    return made


@pytest.fixture
def port(monkeypatch):
    with serving(b"RFB 003.008\n") as number:
        monkeypatch.setattr(desktops, "_VNC_PORT", number)
        yield number


@pytest.fixture
def configure(host, run_module):
    def call(backend="egl", **more):
        arguments = {"users": [ME]} | more if backend != "none" else more
        return run_module(gpu_desktops, host=host.given, backend=backend, **arguments)

    return call


def test_a_desktop_a_page_and_a_password_of_one_s_own_and_a_check_touches_nothing(host, port, configure):
    assert configure(check=True)["changed"] is True
    assert ((host.root / "etc").exists(), host.did()) == (False, [])
    result = configure(port=port)
    assert result["changed"] is True
    unit = Path(desktops.SYSTEMD, UNIT).read_text()
    assert f"User={ME}\n" in unit
    assert "VGL_DISPLAY=egl0" in unit
    assert f"127.0.0.1:{port} 127.0.0.1:{port}" in Path(desktops.SYSTEMD, PAGE).read_text()
    secret, told = (Path(desktops.FOLDER, f"{ME}.{kind}") for kind in ("vnc", "password"))
    word = told.read_text().strip()
    assert (len(word), secret.read_text()) == (8, f"scrambled-{word}\n")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (secret, told)} == {0o600}
    assert word not in str(result)
    assert {f"enable --now {UNIT}", f"enable --now {PAGE}"} <= set(host.did())
    assert configure(port=port)["pending"] == []
    assert told.read_text().strip() == word


def test_only_a_group_and_a_server_without_a_screen_where_that_is_asked_for(host, port, configure):
    for path in ("sys/class/drm/card0/device", "dev/dri/card0", "drivers/nvidia"):
        (host.root / path).mkdir(parents=True)
    (host.root / "sys/class/drm/card0/device/driver").symlink_to(host.root / "drivers/nvidia")
    gpus = ["0000:0a:00.0", "0001:06:10.1"]
    configure("x", port=port, group="daemon", gpus=gpus, size="800x600", session="startxfce4")
    for place, *words in (
        (desktops.XORG, 'BusID "PCI:10@0:0:0"', 'BusID "PCI:6@1:16:1"'),
        (f"{desktops.SYSTEMD}/{UNIT}", "SupplementaryGroups=daemon\n", "SIZE=800x600 VGL_DISPLAY=:19.0", "SESSION=startxfce4"),
        (desktops.UDEV, 'GROUP="daemon"'), (desktops.MODPROBE, "NVreg_DeviceFileGID=1 "),
    ):  # fmt: skip
        text = Path(place).read_text()
        assert [word for word in words if word not in text] == [], text
    assert {f"enable --now {desktops.X_UNIT}", "udevadm control --reload"} <= set(host.did())
    assert configure(port=port)["changed"] is True
    assert not Path(desktops.UDEV).exists()
    assert not Path(desktops.SYSTEMD, desktops.X_UNIT).exists()


def test_others_come_over_tls_alone(host, port, configure):
    write(host.root, {"a.crt": "x", "a.key": "x"}, 0o600)
    asked = {"port": port, "listen": "0.0.0.0", "certificate": f"{host.root}/a.crt", "key": f"{host.root}/a.key"}
    configure(**asked)
    page = Path(desktops.SYSTEMD, PAGE).read_text()
    assert f"LoadCredential=key:{asked['key']}\n" in page
    assert "--ssl-only --cert ${CREDENTIALS_DIRECTORY}/certificate" in page
    Path(asked["key"]).chmod(0o644)
    configure(**asked, fails="can be read by everybody")


def test_a_port_in_use_is_told(monkeypatch):
    there = ports.Listener(7, "nginx", "nginx.service")
    monkeypatch.setattr(ports, "listeners", lambda place: [there] if "6080" in place else [])
    told = {"users": [ME], "listen": "127.0.0.1", "port": 6080, "backend": "egl"}
    (failure,) = desktops.in_the_way({"desktops": told})
    assert "127.0.0.1:6080 is in use by nginx (process 7, nginx.service)" in failure.text()
    assert desktops.in_the_way({"desktops": {"users": []}}) == []
