"""The units that look at a finished machine again, now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusetup.bootstrap.config import Config

__all__ = ["TIMER", "units"]

TIMER = "gpusetup-recheck.timer"
_SERVICE = """[Unit]
Description=gpusetup: check this machine for drift and for a newly pinned lock
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
EnvironmentFile=-/etc/gpusetup/environment
Environment=LC_ALL=C.UTF-8 HOME=/root
ExecStart=/opt/gpusetup-controller/bin/gpusetup cloud-init bootstrap recheck
# 9: something differs, or a reboot is pending; the status says what.
SuccessExitStatus=9
KillMode=process
"""
_TIMER = """[Unit]
Description=gpusetup: check this machine every {seconds} s

[Timer]
OnActiveSec={seconds}s
OnUnitActiveSec={seconds}s
RandomizedDelaySec={spread}s

[Install]
WantedBy=timers.target
"""


def units(config: Config) -> dict[str, str]:
    """Return name and text of each unit; nothing when nobody asked for re-checks."""
    if not config.recheck:
        return {}
    # Machines that were made together do not ask the mirror together.
    spread = max(config.splay, config.recheck // 10)
    return {
        "gpusetup-recheck.service": _SERVICE,
        TIMER: _TIMER.format(seconds=config.recheck, spread=spread),
    }
