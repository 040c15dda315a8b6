"""Every fault by the name that the table has it under."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lab.faults.builds import build_fails, kernel_too_new, no_headers
from tests.lab.faults.disks import dpkg_interrupted, full, lock_held, read_only_boot
from tests.lab.faults.machine import never_answers, one_hangs, power_cut, reboot_lost, ssh_cut
from tests.lab.faults.mirrors import clock, expired_key, mirror, mirror_gone, proxy_needed, wrong_key
from tests.lab.faults.people import hostile_names, no_rights, sudo_password

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.faults.row import Row

NOT_RUN = {
    "SELinux, AppArmor": "the shared kernel enforces neither",
    "the clock of a whole host wrong by years": "all lab hosts share the clock of one kernel; apt's own time is tried above",
}
FAULTS: dict[str, Callable[[Row], None]] = {
    "mirror: the index is missing (404)": mirror("404", "index", (5, 6)),
    "mirror: a package is missing (404)": mirror("404", "packages", (7,)),
    "mirror: packages with a wrong hash": mirror("corrupt", "packages", (7,)),
    "mirror: a truncated index": mirror("truncated", "index", (5, 6)),
    "mirror: nothing listens": mirror_gone,
    "mirror: signed by another key": wrong_key,
    "mirror: an expired index": mirror("expired", "index", (5, 6)),
    "mirror: nothing answers (it accepts and is silent)": mirror("hang", "index", (5, 6)),
    "mirror: down (503)": mirror("503", "all", (5, 6)),
    "mirror: slow (20 kB/s)": mirror("slow", "all", (0,)),
    "mirror: a truncated package": mirror("truncated", "packages", (7,)),
    "mirror: signed by a key that has expired": expired_key,
    "mirror: only a proxy knows the way": proxy_needed,
    "clock of apt five years behind": clock,
    "SSH cut in the middle of dpkg": ssh_cut,
    "host power cut in the middle of dpkg": power_cut("nvidia-smi", "sleep 8"),
    "host power cut in the middle of the module build": power_cut("dkms-build", "sleep 12"),
    "a reboot that never returns": reboot_lost,
    "one host of twenty hanging in the middle of dpkg": one_hangs,
    "a host on which the look never ends": never_answers,
    "disk full: /": full("/", 2500),
    "disk full: /boot": full("/boot", 96),
    "read-only /boot": read_only_boot,
    "dpkg lock held by another program, let go while it waits": lock_held,
    "an interrupted dpkg from before": dpkg_interrupted,
    "the module build fails": build_fails,
    "a kernel too new for the driver's source": kernel_too_new,
    "kernel headers missing and not offered": no_headers,
    "sudo without rights, then with": no_rights,
    "sudo with a password: without, wrong, right": sudo_password,
    "200 hostile inventory names beside a good one": hostile_names,
}
