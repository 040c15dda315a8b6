"""No room, no writing, no lock, and what an earlier dpkg left half done."""

import time
from collections.abc import Callable
from contextlib import ExitStack

from tests.lab.faults.row import Lab, Row, completes, judged
from tests.lab.harm import packages_locked
from tests.lab.moments import package_step


def full(mount: str, mib: int, names: str) -> Callable[[Row], None]:
    def run(row: Row) -> None:
        with Lab(f"full{mount.replace('/', '-')}", disks={mount: mib}) as lab:
            lab.host.fill_disk(mount, leave_mib=3)
            judged(row, lab, lab.apply(), 5, names, unchanged=True)
            lab.host.free_disk(mount)
            completes(row, lab)

    return run


def small_boot(row: Row) -> None:
    """It holds one kernel with its initramfs and has no room for a second image: known before anything is changed."""
    with Lab("small-boot", disks={"/boot": 30}) as lab:
        judged(row, lab, lab.apply(), 5, "GS-472", unchanged=True)
        completes(row, lab, (5,))


def read_only_boot(row: Row) -> None:
    with Lab("read-only", disks={"/boot": 200}) as lab:
        lab.host.ssh("mount", "-o", "remount,bind,ro", "/boot")
        judged(row, lab, lab.apply(), 5, "GS-472", unchanged=True)
        lab.host.ssh("mount", "-o", "remount,bind,rw", "/boot")
        completes(row, lab)


def lock_held(row: Row) -> None:
    with Lab("lock") as lab:
        with ExitStack() as held:
            held.enter_context(packages_locked(lab.host))

            def let_go(_pid: int) -> None:
                time.sleep(10)
                held.close()

            judged(row, lab, lab.apply_until(lambda: package_step(lab.host) == "lock", let_go), 0)
        completes(row, lab)


def dpkg_interrupted(row: Row) -> None:
    with Lab("half-dpkg") as lab:
        control = "Package: lab-half\nVersion: 1\nArchitecture: all\nMaintainer: lab\nDescription: half\n"
        lab.host.ssh("sh", "-c", f"mkdir -p /tmp/h/DEBIAN && printf '{control}' >/tmp/h/DEBIAN/control")
        lab.host.ssh("sh", "-c", "dpkg-deb -b /tmp/h /tmp/h.deb && dpkg --unpack /tmp/h.deb")
        judged(row, lab, lab.apply(), 0)
        completes(row, lab)
