"""Who signed a module, and does the kernel take it: real signatures, real certificates, wherever the module lies."""

from collections.abc import Callable

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import driver
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import firmware, modules
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import LiveHost

from tests.lab.repository.elf import module
from tests.unit.facts.conftest import Machine
from tests.unit.facts.signing import Key, efi_list, signed

KERNEL = "6.4.0-150600.23-default"
PLACES = ("updates/dkms", "updates", "weak-updates/updates", "extra", "kernel/nvidia-580", "kernel/drivers/video")
VARIABLES = "sys/firmware/efi/efivars"
SHIM, DATABASE = "605dab50-e046-4300-abb6-3dd810dd8b23", "d719b2cb-3d3a-4596-a3bc-dad00e67656f"
PLAIN = module({"version": "580.95.05", "license": "Dual MIT/GPL"})


class Secured(Machine):
    """A machine with Secure Boot whose module and keys are put in one by one."""

    def __init__(self, root):
        super().__init__(root)
        self.put(f"{VARIABLES}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\6\0\0\0\1")
        self.put("etc/os-release", b"ID=debian\n")

    def owner(self, *certificates):
        return self.put(f"{VARIABLES}/MokListRT-{SHIM}", efi_list(*certificates))

    def module(self, content, place="updates"):
        return self.put(f"lib/modules/{KERNEL}/{place}/nvidia.ko", content)

    def facts(self):
        host = self.live()
        firm = firmware.collect(host)
        item = {"release": KERNEL, "nvidia": modules.find(host, KERNEL)}
        return {
            "simulated": False, "kernel": {"running": KERNEL, "next": KERNEL, "installed": [item]},
            "nouveau": {"loaded": False}, "secure_boot": firm.pop("secure_boot"), "firmware": firm,
            "driver": {"loaded": None}, "processes": [], "module_users": {},
        }  # fmt: skip

    def answer(self):
        """Whether the kernel takes the module, and whether somebody must go to the console."""
        facts = self.facts()
        return driver.taken(facts, driver.module_of(facts, KERNEL)), driver.waits_for_console(facts)


@pytest.fixture
def machine(tmp_path):
    return Secured(tmp_path)


@pytest.fixture(scope="module")
def vendor(tmp_path_factory):
    return Key(tmp_path_factory.mktemp("vendor"), "SUSE Linux Enterprise Secure Boot CA", "SUSE Linux Products GmbH")


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    return Key(tmp_path_factory.mktemp("own"), "DKMS module signing key")


EFI_TABLE, MORE = "sys/firmware/efi/mok-variables/MokListRT", f"{VARIABLES}/MokListRT1-{SHIM}"
KNOWN: dict[str, Callable[[Secured, Key], object]] = {
    "the owner's list": lambda machine, key: machine.owner(key.der),
    "shim's own table": lambda machine, key: machine.put(EFI_TABLE, efi_list(key.der)[4:]),
    "a continued list": lambda machine, key: machine.owner(b"another").put(MORE, efi_list(key.der)),
    "the firmware's db": lambda machine, key: machine.put(f"{VARIABLES}/db-{DATABASE}", efi_list(b"x", key.der)),
    "the kernel": lambda machine, key: machine.put("proc/keys", key.in_kernel().encode()),
}
WISH = driver.Wish("580.95.05", "open")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("who", ["vendor", "own"])
def test_a_known_signer_is_taken_wherever_the_module_lies(request, machine, place, known, who):
    key = request.getfixturevalue(who)
    machine.module(signed(key), place)
    machine.put("var/lib/dkms/mok.pub", request.getfixturevalue("own").der)
    if place.startswith("weak"):
        machine.put(f"lib/modules/{KERNEL}/modules.dep", f"{place}/nvidia.ko:\n".encode())
    KNOWN[known](machine, key)
    assert machine.answer() == (True, False)
    assert driver.obstacle(machine.facts(), WISH) is None


@pytest.mark.parametrize("by_key", [False, True], ids=["number", "identifier"])
@pytest.mark.parametrize("place", PLACES[:1] + PLACES[3:4])
def test_a_key_of_this_host_that_nobody_enrolled_waits_for_the_console(machine, own, vendor, place, by_key):
    machine.module(signed(own, by_key=by_key), place)
    machine.put("var/lib/dkms/mok.pub", own.der).owner(vendor.der).put("proc/keys", vendor.in_kernel().encode())
    assert machine.answer() == (False, True)
    assert "Enroll MOK" in (driver.refusal_reason(machine.facts()) or "")
    machine.put("var/lib/dkms/mok.pub", own.pem.read_bytes())  # in text form it is the same certificate
    assert machine.answer() == (False, True)
    machine.owner(own.der)
    assert machine.answer() == (True, False)
    machine.put("var/lib/dkms/mok.pub", own.pem.read_bytes().replace(b"\nMII", b"\nMI"))  # damaged: none that is known
    assert machine.answer() == (True, False), "the kernel still knows the signer"


@pytest.mark.parametrize("place", PLACES[:2] + PLACES[3:])
def test_an_unsigned_module_is_refused_and_no_console_helps(machine, own, place):
    machine.module(PLAIN, place).put("var/lib/dkms/mok.pub", own.der).owner(own.der)
    assert machine.answer() == (False, False)
    assert "not signed" in (driver.obstacle(machine.facts(), WISH) or "")


def test_without_secure_boot_every_module_is_taken(machine):
    machine.module(PLAIN)
    off = machine.put(f"{VARIABLES}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\6\0\0\0\0")
    assert off.answer() == (True, False)
    off.put("sys/kernel/security/lockdown", b"none [integrity] confidentiality\n")
    assert off.answer() == (False, False)


def test_shims_check_that_was_switched_off_counts_as_no_secure_boot(machine):
    assert machine.facts()["secure_boot"] is True
    assert machine.put(f"{VARIABLES}/MokSBStateRT-{SHIM}", b"\6\0\0\0\1").facts()["secure_boot"] is False
    assert machine.put(f"{VARIABLES}/MokSBStateRT-{SHIM}", b"\6\0\0\0\0").facts()["secure_boot"] is True


# As kmod prints it; the numbers are made for the tests.
BY_NAME = """filename:       /lib/modules/6.8.0/kernel/nvidia-580/nvidia.ko
license:        NVIDIA
version:        580.95.05
srcversion:     0123456789ABCDEF0123456
vermagic:       6.8.0 SMP preempt mod_unload modversions
sig_id:         PKCS#7
signer:         Canonical Ltd. Kernel Module Signing
sig_key:        0A:1B:2C:3D
sig_hashalgo:   sha512
signature:      31:7F:AA:BB:
\t\tCC:DD:EE
parm:           NVreg_Mobile:int
"""
NAMELESS = """license:        Dual MIT/GPL
version:        580.95.05
sig_id:         PKCS#7
signer:         
sig_key:        
sig_hashalgo:   unknown
signature:      30:82:01
"""  # noqa: W291 - so does kmod without OpenSSL
UNSIGNED = "filename:       /x/nvidia.ko\nlicense:        NVIDIA\nversion:        580.95.05\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BY_NAME, {"signed": True, "signer": "Canonical Ltd. Kernel Module Signing", "key": "a1b2c3d"}),
        (NAMELESS, {"signed": True, "signer": None, "key": None}),
        (UNSIGNED, {"signed": False, "signer": None, "key": None}),
    ],
    ids=["named", "nameless", "unsigned"],
)
def test_what_modinfo_prints(monkeypatch, text, says):
    monkeypatch.setattr(modules.commands, "run", lambda *_words: {"rc": 0, "out": text, "err": ""})
    told = modules.modinfo(LiveHost(), "/lib/modules/x/nvidia.ko.zst")
    assert told is not None
    assert {name: told[name] for name in says} == says
    assert told["version"] == "580.95.05"
