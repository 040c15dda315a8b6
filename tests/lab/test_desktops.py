"""Two people's desktops at once on one host, as a real browser shows them: Debian's real TigerVNC, noVNC, websockify,
openbox and Mesa. VirtualGL is a stand-in (no package of it can be had here) that lets Mesa draw in software.
"""

import json
import socket

import pytest

from gpusetup.verify.checks.smoke.desktop_renderer import item
from tests.lab.applying import apply, gpusetup
from tests.lab.browser import BROWSER, browser
from tests.lab.lifecycle import stand_ins
from tests.lab.picture import of_png, of_xwd
from tests.lab.plays import files_below, measured, packages
from tests.lab.process import until

PLACES = ("/etc/systemd/system", "/etc/gpusetup", "/etc/udev/rules.d", "/etc/modprobe.d", "/usr/local")
TOOLS = "apt-get update -qq && apt-get install -qq -y --no-install-recommends x11-apps x11-xserver-utils openssl"
CERTIFICATE = (
    "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lab -keyout /etc/desk.key -out /etc/desk.crt && "
    "chmod 600 /etc/desk.key"
)
BLUE, SAND = (0x33, 0x66, 0x99), (0xCC, 0xAA, 0x77)
SIZE = "800x600"
CONNECTED = "document.documentElement.classList.contains('noVNC_connected') && (document.querySelector('canvas') || {}).width == 800"


def wish(repositories, desktops):
    more = repositories.beside("virtualgl", f"{repositories.virtualgl}/")
    return stand_ins(repositories, gpusetup_driver="==580.142", gpusetup_desktops=json.dumps(desktops), **more)


def looked(host, desktops):
    state = {"state": {"lock": {"wanted": {"desktops": desktops}}}}
    return measured(host, f"import desktops; print(json.dumps(desktops.look({state!r})))")


def inside(user, number, *argv):
    settings = [f"DISPLAY=:{number}", f"XAUTHORITY=/run/gpusetup-desktop-{user}/xauthority", "VGL_DISPLAY=egl0"]
    return ["runuser", "-u", user, "--", "env", *settings, *argv]


def draw(host, user, number, colour, place):
    """A background, and three gears that stand still, drawn by OpenGL through vglrun."""
    host.ssh(*inside(user, number, "xsetroot", "-solid", "#" + bytes(colour).hex()))
    gears = " ".join(inside(user, number, "vglrun", "glxgears", "-geometry", place))
    host.ssh("sh", "-c", f"pkill -u {user} xterm; setsid {gears} >/dev/null 2>&1 </dev/null & sleep 4")
    host.ssh("pkill", "-STOP", "-u", user, "glxgears")


def held(host, user, number):
    """What the X server itself holds."""
    host.ssh("sh", "-c", " ".join(inside(user, number, "xwd", "-root", "-silent")) + f" >/root/{user}.xwd")
    return of_xwd(host.path(f"/root/{user}.xwd").read_bytes())


def shown(leader, folder, host, user, port):
    """What a browser shows of a desktop."""
    word = host.path(f"/etc/gpusetup/desktops/{user}.password").read_text().strip()
    page = leader.open(f"https://{host.address}:{port}/vnc.html?autoconnect=1&resize=off&password={word}")
    page.until(CONNECTED)
    page.tells("document.querySelector('canvas').style.cssText += 'position:fixed;margin:0;left:0;top:0;cursor:none'")
    page.tells(
        "for (const id of ['noVNC_control_bar_anchor', 'noVNC_status']) document.getElementById(id).style.display = 'none'"
    )
    page.until("(r => r.x == 0 && r.y == 0)(document.querySelector('canvas').getBoundingClientRect())")
    page.until("document.querySelector('canvas').getContext('2d').getImageData(780, 20, 1, 1).data[2] > 60")
    page.tells("new Promise(done => setTimeout(done, 500))")
    file = folder / f"{user}.png"
    page.picture(file, 0, 0, 800, 600)
    return of_png(file)


def reaches(host, port):
    with socket.socket() as stream:
        stream.settimeout(5)
        return stream.connect_ex((host.address, port)) == 0


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no browser: apt-get install chromium")
def test_two_people_see_what_is_drawn_in_their_desktops_and_nobody_else_does(lab):
    (host,) = lab.hosts(flavour="debian12", machine="t4-x4", network="mirror")

    def asked(desktops):
        return lab.inventory([host], wish(lab.repositories, desktops))

    both = {"users": ["alice", "bob"], "size": SIZE}
    host.ssh("sh", "-c", f"useradd -m alice; useradd -m bob; {CERTIFICATE} && {TOOLS}")
    before = files_below(host, *PLACES), packages(host)
    first = asked(both)
    apply(lab.folder, first).well()
    assert [reaches(host, port) for port in (6080, 6081, 5920)] == [False, False, False]

    found = looked(host, both)
    assert [item(user, found[user]).verdict for user in both["users"]] == ["fail", "fail"]
    assert "llvmpipe" in item("alice", found["alice"]).text
    assert "software on the processor, not the GPU" in item("alice", found["alice"]).text
    stand_in = [item(user, found[user], expected="llvmpipe") for user in both["users"]]
    assert [one.verdict for one in stand_in] == ["pass", "pass"], stand_in
    mesa = host.ssh("runuser", "-u", "alice", "--", "eglinfo", check=False).stdout  # some platforms need a screen
    assert "EGL vendor string: Mesa Project" in mesa
    for secret in ("/etc/gpusetup/desktops/alice.password", "/etc/gpusetup/desktops/alice.vnc"):
        assert host.ssh("runuser", "-u", "bob", "--", "test", "-r", secret, check=False).returncode != 0
        host.ssh("runuser", "-u", "alice", "--", "test", "-r", secret)
    spy = inside("bob", 20, "xwd", "-root", "-silent")
    assert host.ssh(*spy, check=False).returncode != 0

    lab.unchanged(first)
    gpusetup(lab.folder, "drift", first, "--format", "json").well()

    draw(host, "alice", 20, BLUE, "300x300+100+100")
    draw(host, "bob", 21, SAND, "200x200+400+250")
    gears = host.ssh("pgrep", "-u", "alice", "glxgears").stdout
    tls = {**both, "listen": host.address, "certificate": "/etc/desk.crt", "key": "/etc/desk.key"}
    second = asked(tls)
    apply(lab.folder, second).well()
    assert host.ssh("pgrep", "-u", "alice", "glxgears").stdout == gears
    assert [reaches(host, port) for port in (6080, 6081, 5920)] == [True, True, False]

    with browser(lab.folder) as leader:
        pictures = {user: shown(leader, lab.folder, host, user, 6080 + at) for at, user in enumerate(both["users"])}
    for at, user in enumerate(both["users"]):
        assert pictures[user].unlike(held(host, user, 20 + at)) < 0.005, user
    assert pictures["alice"].unlike(pictures["bob"]) > 0.5
    for user, colour in (("alice", BLUE), ("bob", SAND)):
        corner = pictures[user].at(780, 20)
        assert max(abs(one - two) for one, two in zip(corner, colour, strict=True)) < 8
        assert {name for name, hue in HUES.items() if any(hue(*pixel) for pixel in pictures[user].colours)} == set(HUES)

    host.ssh("systemctl", "stop", "gpusetup-desktop-page-bob.service")
    mended = apply(lab.folder, second)
    assert (mended.code, mended.hosts[host.name]["state"]) == (0, "done"), mended.out
    until(lambda: reaches(host, 6081), "bob's page")

    alone = asked({**tls, "users": ["alice"]})
    apply(lab.folder, alone).well()
    assert host.ssh("pgrep", "-u", "bob", "Xtigervnc", check=False).returncode != 0
    assert not host.path("/etc/gpusetup/desktops/bob.vnc").exists()
    lab.rolled_back(alone)
    until(lambda: reaches(host, 6081), "bob's page after the rollback")

    assert lab.removed(second).code == 9  # the driver's module stays loaded until the next boot
    assert (files_below(host, *PLACES), packages(host)) == before
    assert host.ssh("pgrep", "-u", "alice", "Xtigervnc", check=False).returncode != 0


HUES = {
    "red": lambda red, green, blue: red > 150 and green < 60 and blue < 60,
    "green": lambda red, green, blue: green > 150 and red < 60 and blue < 100,
    "blue": lambda red, green, blue: blue > 200 and red < 80 and green < 80,
}
"""The gears of glxgears."""
