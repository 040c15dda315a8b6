"""Secure Boot: which key signs modules built here, and its enrolment with the firmware, which a person confirms."""

import hashlib
import os
import random
import re
from typing import Dict, Optional, Tuple

from ..gpu_probe import firmware
from . import files, process
from .failure import HostFailure
from .machine import Machine

CONFIGURATION = "/etc/dkms/framework.conf.d/gpusetup-signing.conf"
_PATH = re.compile(r"^/[A-Za-z0-9_./+@:-]+$")
# Keys that all common keyboard layouts share: MokManager knows only the American layout.
_LETTERS = "bcdefghijklnoprstuvx"
_LENGTH = 12


def configuration(key: str, certificate: str) -> str:
    """Return DKMS's configuration for a site's key; fail if the key is missing or readable by others than root."""
    for path in (key, certificate):
        if not _PATH.fullmatch(path) or not os.path.isfile(path):
            raise HostFailure(
                "GS-493", f"no signing key or certificate at {path}", hint="nothing was changed; put it there first"
            )
    if os.stat(key).st_mode & 0o077:
        raise HostFailure(
            "GS-493", f"the signing key {key} is readable by users other than root", hint="chmod 600 " + key
        )
    return f'# Written by gpusetup.\nmok_signing_key="{key}"\nmok_certificate="{certificate}"\n'


def chosen() -> Optional[str]:
    """Return the certificate of the site's key that gpusetup configured in DKMS, None without one."""
    found = re.search(r'^mok_certificate="(.+)"$', files.read_text(CONFIGURATION) or "", re.MULTILINE)
    return found.group(1) if found else None


def refuse_old_dkms(machine: Machine, certificate: str) -> None:
    """Fail if the installed DKMS would not sign with the site's key."""
    host = machine.host
    if firmware.takes_a_key(host):
        return
    digest = firmware.fingerprint(host, certificate)
    signs = firmware.collect(machine.running_from, host)["signing_keys"]
    if any(key["sha256"] == digest for key in signs):
        return
    own = "{} signs with the key of {}".format(firmware.DKMS, signs[0]["path"]) if signs else "it signs with no key"
    raise HostFailure(
        "GS-493",
        "the installed DKMS cannot sign with the site's key: releases before 3.0.4 take none",
        certificate,
        own,
        f"nothing was changed. On Ubuntu put the site's key and certificate to {firmware.UBUNTU_PRIVATE_KEY} and "
        f"{firmware.UBUNTU_KEY}, which such a DKMS uses; elsewhere install DKMS 3.0.4 or newer",
    )


def refuse_unknown(machine: Machine, certificate: str) -> None:
    """Fail if the kernel would not accept modules signed with this key."""
    seen = firmware.collect(machine.running_from, machine.host)
    if seen["secure_boot"] and not firmware.knows(machine.host, certificate, seen):
        hint = (
            "nothing was changed; enrol it (gpu_driver_enroll_key, gpusetup_secure_boot=enroll), "
            "or by hand: mokutil --import " + certificate
        )
        raise HostFailure(
            "GS-495", "Secure Boot is on and the firmware does not trust the site's signing key", certificate, hint=hint
        )


class Enrolment:
    """The request to the firmware to trust the signing key, confirmed at the next boot with a one-time password."""

    def __init__(self, machine: Machine, env: Dict[str, str], check: bool = False) -> None:
        self.env = env
        self.check = check
        self.seen = firmware.collect(machine.running_from, machine.host)

    def stage(self) -> Tuple[bool, str]:
        """Request the enrolment unless it is done or needless; return (changed, "needless", "enrolled" or "staged")."""
        keys = self.seen["signing_keys"]
        if not self.seen["secure_boot"]:
            return False, "needless"
        if any(key["enrolled"] for key in keys):
            if os.path.exists(firmware.PASSWORD) and not self.check:
                os.unlink(firmware.PASSWORD)
            return False, "enrolled"
        if not keys:
            raise HostFailure(
                "GS-494", "modules built on this host are not signed",
                hint="does DKMS sign? See its build log: Signing key",
            )  # fmt: skip
        certificate = keys[0]["path"]
        if self._is_staged(certificate):
            return False, "staged"
        if not self.check:
            self._import(certificate)
        return True, "staged"

    def _is_staged(self, certificate: str) -> bool:
        code, text, error = process.output(["mokutil", "--list-new"], self.env, 30)
        if code == 127:
            raise HostFailure(
                "GS-494", "mokutil is not installed", error.strip(),
                hint="apt-get install mokutil, dnf install mokutil or zypper install mokutil",
            )  # fmt: skip
        digest = hashlib.sha1(files.read_bytes(certificate) or b"").hexdigest()  # noqa: S324 - mokutil names them so; it protects nothing
        return digest in text.lower().replace(":", "")

    def _import(self, certificate: str) -> None:
        source = random.SystemRandom()
        password = "".join(source.choice(_LETTERS) for _ in range(_LENGTH))
        path, before = firmware.PASSWORD + ".hash", files.read_bytes(firmware.PASSWORD)
        hashed = _hash(password, self.env)
        try:
            files.write_atomically(path, hashed, 0o600)
            files.write_atomically(firmware.PASSWORD, password + "\n", 0o600)  # now, or an interruption would lose it
            code, text, error = process.output(["mokutil", "--import", certificate, "--hash-file", path], self.env, 60)
        finally:
            if os.path.exists(path):
                os.unlink(path)
        if code:
            if before is None:
                os.unlink(firmware.PASSWORD)
            else:  # that of an earlier request, which still stands
                files.write_atomically(firmware.PASSWORD, before, 0o600)
            raise HostFailure(
                "GS-494", "could not stage the enrolment of the signing key", certificate,
                (error or text).strip()[-500:],
            )  # fmt: skip


def _hash(password: str, env: Dict[str, str]) -> str:
    code, text, error = process.output(["openssl", "passwd", "-6", "-stdin"], env, 30, password + "\n")
    if code:
        said = error.strip()
        raise HostFailure("GS-494", "openssl cannot hash the one-time password", "", said, "install openssl")
    return text.strip() + "\n"
