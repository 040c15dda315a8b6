"""Every fault by the name that the table has it under."""

from collections.abc import Callable

from tests.lab.faults.builds import build_fails, kernel_too_new, no_headers
from tests.lab.faults.crowd import nearly_all_dead, two_names, two_names_two_wishes
from tests.lab.faults.disks import dpkg_interrupted, full, lock_held, read_only_boot, small_boot
from tests.lab.faults.late import back_too_late, killed_in_the_reboot, killed_on_the_host
from tests.lab.faults.machine import never_answers, one_hangs, power_cut, ssh_cut
from tests.lab.faults.mirrors import clock, expired_key, mirror, mirror_gone, proxy_needed
from tests.lab.faults.people import hostile_names, no_rights, sudo_password
from tests.lab.faults.records import (
    clock_went_back,
    many_runs_beside,
    package_forced_away,
    plan_says_what_apply_does,
    record_halved,
    record_lost,
    secrets_kept,
)
from tests.lab.faults.row import Row

NOT_RUN = {
    "SELinux, AppArmor": "the shared kernel enforces neither",
    "the clock of a whole host wrong by years": "all lab hosts share the clock of one kernel; apt's own time is tried above",
}
PROXY = {"gpusetup_proxy": "http://user:{secret}@10.77.0.1:9", "gpusetup_no_proxy": '["10.77.0.1"]'}
NO_SCHEME, LOGIN = {"gpusetup_proxy": "user:{secret}@10.77.0.1:9"}, "http://user:{secret}@{base}"
FAULTS: dict[str, Callable[[Row], None]] = {
    "mirror: the index is missing (404)": mirror("404", "index", 6, "GS-449"),
    "mirror: a package is missing (404)": mirror("404", "packages", 7, "404"),
    "mirror: packages with a wrong hash": mirror("corrupt", "packages", 7, "Hash Sum mismatch"),
    "mirror: a truncated index": mirror("truncated", "index", 6, "GS-449"),
    "mirror: nothing listens": mirror_gone,
    "mirror: signed by another key": mirror("wrong-key", "index", 5, "NO_PUBKEY"),
    "mirror: an expired index": mirror("expired", "index", 6, "expired"),
    "mirror: nothing answers (it accepts and is silent)": mirror("hang", "index", 6, "GS-449"),
    "mirror: down (503)": mirror("503", "all", 6, "503"),
    "mirror: slow (20 kB/s)": mirror("slow", "all", 0),
    "mirror: a truncated package": mirror("truncated", "packages", 7, "Failed to fetch"),
    "mirror: signed by a key that has expired": expired_key,
    "mirror: only a proxy knows the way": proxy_needed,
    "clock of apt five years behind": clock,
    "SSH cut in the middle of dpkg": ssh_cut,
    "host power cut in the middle of dpkg": power_cut("nvidia-smi", "sleep 8"),
    "host power cut in the middle of the module build": power_cut("dkms-build", "sleep 12"),
    "a reboot that returns after the controller's patience": back_too_late,
    "controller killed (SIGKILL) once the host has rebooted": killed_in_the_reboot,
    "dpkg killed in the package step": killed_on_the_host("dpkg", 7),
    "apt-get killed in the package step": killed_on_the_host("apt-get", 7),
    "the job's Python killed in the package step": killed_on_the_host("python3", 7),
    "one host of twenty hanging in the middle of dpkg": one_hangs,
    "a host on which the look never ends": never_answers,
    "disk full: /": full("/", 2500, "GS-332"),
    "disk full: /boot": full("/boot", 96, "GS-472"),
    "a /boot of 30 MB": small_boot,
    "read-only /boot": read_only_boot,
    "dpkg lock held by another program, let go while it waits": lock_held,
    "an interrupted dpkg from before": dpkg_interrupted,
    "the module build fails": build_fails,
    "a kernel too new for the driver's source": kernel_too_new,
    "kernel headers missing and not offered": no_headers,
    "sudo without rights, then with": no_rights,
    "sudo with a password: without, wrong, right": sudo_password,
    "200 hostile inventory names beside a good one": hostile_names,
    "200 hosts of which 199 are dead": nearly_all_dead,
    "one host under two names": two_names,
    "one host under two names with two wishes": two_names_two_wishes,
    "51 other runs while one installs": many_runs_beside,
    "the controller's clock six years back, 50 runs kept": clock_went_back,
    "a proxy's password with -vvvv": secrets_kept(PROXY, "--", "-vvvv", code=0),
    "a proxy's password without a scheme": secrets_kept(NO_SCHEME, code=5, names="GS-442"),
    "a password in a source's address": secrets_kept({"gpusetup_source": LOGIN}, code=3, names="GS-317"),
    "a password in a key's address": secrets_kept(
        {"gpusetup_source_key": f"{LOGIN}/lab-key.asc"}, code=3, names="GS-317"
    ),
    "the host's record is lost": record_lost,
    "the host's record is cut in half": record_halved,
    "a recorded package forced away": package_forced_away,
    "the module is gone: plan and apply on the reboot": plan_says_what_apply_does,
}
