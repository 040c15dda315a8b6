"""The texts of a desktop's files: its launcher, its units, an X server's settings, rules for device files."""

import re
from typing import Sequence

SIGNED = "# Written by gpusetup: changes here are lost at the next apply.\n"
LAUNCHER = (
    "#!/bin/sh\n"
    + SIGNED
    + """# The desktop of one user: a VNC server of its own, and in it the program that draws the desktop.
set -eu
export DISPLAY=":$NUMBER" XAUTHORITY="$RUNTIME_DIRECTORY/xauthority" XDG_RUNTIME_DIR="$RUNTIME_DIRECTORY"
for server in {servers}; do
  [ ! -x "$server" ] || break
done
password="$HOME/.vnc/passwd"
[ -s "$password" ] || password="{folder}/$USER.vnc"
case $server in
  /opt/TurboVNC/*) set -- ;;
  *) set -- -SecurityTypes VncAuth ;;
esac
rm -f "$XAUTHORITY" "$RUNTIME_DIRECTORY/ready"
xauth -q -f "$XAUTHORITY" add "$DISPLAY" . "$(mcookie)"
if [ -s "${{CREDENTIALS_DIRECTORY:-/nowhere}}/xauthority" ]; then
  xauth -q -f "$XAUTHORITY" merge "$CREDENTIALS_DIRECTORY/xauthority"
fi
mkfifo "$RUNTIME_DIRECTORY/ready"
"$server" "$DISPLAY" -auth "$XAUTHORITY" -rfbauth "$password" -rfbport "$VNC_PORT" -localhost "$@" \\
  -geometry "$SIZE" -depth 24 -desktop "$USER" -nolisten tcp -displayfd 3 3>"$RUNTIME_DIRECTORY/ready" &
vnc=$!
trap 'kill "$vnc" 2>/dev/null || :' EXIT
trap 'exit 0' TERM INT
read -r _number <"$RUNTIME_DIRECTORY/ready"
if [ -n "$SESSION" ]; then
  set -- "$SESSION"
else
  xterm &
  set -- openbox
fi
if command -v dbus-run-session >/dev/null; then
  set -- dbus-run-session -- "$@"
fi
"$@" &
wait $!
"""
)
_ALWAYS = """Restart=always
RestartSec=3

[Install]
WantedBy=multi-user.target
"""
DESKTOP = (
    SIGNED
    + """[Unit]
Description=Desktop of {user}
After=network.target nvidia-persistenced.service{after}
{requires}
[Service]
User={user}
{groups}WorkingDirectory=~
EnvironmentFile=-/etc/environment
EnvironmentFile=-/etc/default/locale
Environment=NUMBER={display} VNC_PORT={vnc} SIZE={size} VGL_DISPLAY={device}
Environment=SESSION={session}
{credentials}RuntimeDirectory=gpusetup-desktop-{user}
RuntimeDirectoryMode=0700
ExecStart={launcher}
"""
    + _ALWAYS
)
PAGE = (
    SIGNED
    + """[Unit]
Description=Page of the desktop of {user}
After=network.target

[Service]
User={user}
NoNewPrivileges=yes
ProtectSystem=strict
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
ProtectHome=read-only
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectProc=invisible
CapabilityBoundingSet=
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
SystemCallFilter=@system-service
{credentials}ExecStart={websockify} --web {pages} {tls}{listen} 127.0.0.1:{vnc}
"""
    + _ALWAYS
)
X = (
    SIGNED
    + """[Unit]
Description=X server without a screen, on the GPUs
After=nvidia-persistenced.service systemd-modules-load.service

[Service]
RuntimeDirectory=gpusetup-desktop-x
RuntimeDirectoryMode=0700
ExecStartPre=/bin/sh -c 'rm -f {cookie}; xauth -q -f {cookie} add :{display} . $$(mcookie)'
ExecStart=/usr/bin/Xorg :{display} -config {config} -auth {cookie} -nolisten tcp -noreset -novtswitch -sharevts
"""
    + _ALWAYS
)
COOKIE = "/run/gpusetup-desktop-x/xauthority"
XORG_GPU = """
Section "Device"
    Identifier "gpu{number}"
    Driver "nvidia"
    BusID "{bus}"
EndSection

Section "Screen"
    Identifier "screen{number}"
    Device "gpu{number}"
    Option "AllowEmptyInitialConfiguration" "true"
    Option "UseDisplayDevice" "none"
    DefaultDepth 24
EndSection
"""
UDEV = """KERNEL=="card[0-9]*|renderD[0-9]*", SUBSYSTEM=="drm", DRIVERS=="nvidia", GROUP="{group}", MODE="0660"
"""
MODPROBE = """options nvidia NVreg_DeviceFileUID=0 NVreg_DeviceFileGID={number} NVreg_DeviceFileMode=0660
"""


def xorg(gpus: Sequence[str]) -> str:
    """Return the settings of an X server that draws on all GPUs without a display; BusID is decimal."""
    screens = "".join(f'    Screen {number} "screen{number}"\n' for number in range(len(gpus)))
    layout = f'Section "ServerLayout"\n    Identifier "desktops"\n{screens}EndSection\n'
    return layout + "".join(XORG_GPU.format(number=number, bus=_bus_id(address)) for number, address in enumerate(gpus))


def _bus_id(address: str) -> str:
    domain, bus, device, function = (int(part, 16) for part in re.split(r"[:.]", address))
    return f"PCI:{bus}@{domain}:{device}:{function}"
