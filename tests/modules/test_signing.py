"""The key that signs modules under Secure Boot, its enrolment, and what DKMS built with it or builds anew."""

import hashlib
import stat
import subprocess
from contextlib import nullcontext
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import dkms, process, signing
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import firmware

from tests.lab.repository.elf import module
from tests.modules.stand_ins import refused, replace, write
from tests.stored import stored
from tests.unit.facts.signing import Below, Key, signed

CERTIFICATE = b"a certificate"
MOKUTIL = stored("signing_mokutil.txt")


class Machine:
    def __init__(self, root):
        self.host = self.running_from = Below(root)

    def kernels(self):
        return {"next": "6.1"}

    def module_on_disk(self, _kernel):
        return {"path": "/lib/modules/6.1/updates/dkms/nvidia.ko"}


def with_firmware(root, enrolled=None):
    listed = b""
    if enrolled is not None:
        item = bytes(16) + enrolled
        sizes = b"".join(size.to_bytes(4, "little") for size in (28 + len(item), 0, len(item)))
        listed = bytes.fromhex("a159c0a5e494a74a87b5ab155c2bf072") + sizes + item
    write(root, {
        "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": b"\6\0\0\0\1",
        "sys/firmware/efi/efivars/MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23": b"\6\0\0\0" + listed,
        "var/lib/dkms/mok.pub": CERTIFICATE,
    })  # fmt: skip
    return root


@pytest.fixture
def mokutil(tmp_path, monkeypatch):
    path = tmp_path / "bin" / "mokutil"
    write(path.parent, {"mokutil": MOKUTIL}, 0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    monkeypatch.setattr(signing.firmware, "PASSWORD", str(tmp_path / "state" / "mok-password"))
    read = signing.files.read_bytes
    monkeypatch.setattr(signing.files, "read_bytes", lambda path: read(path) if "password" in path else CERTIFICATE)
    return path


def test_the_configured_certificate_is_the_one_that_counts(tmp_path):
    root = with_firmware(tmp_path, enrolled=b"the site's")
    own = firmware.collect(Below(root))
    assert [(key["path"], key["enrolled"]) for key in own["signing_keys"]] == [("/var/lib/dkms/mok.pub", False)]
    write(root, {
        "etc/dkms/framework.conf": "# mok_certificate=/not/this.pub\n", "etc/site.der": "the site's",
        "etc/dkms/framework.conf.d/site.conf": 'mok_signing_key="/etc/site.key"\nmok_certificate="/etc/site.der"\n',
    })  # fmt: skip
    sites = firmware.collect(Below(root))
    assert [(key["path"], key["enrolled"]) for key in sites["signing_keys"]] == [("/etc/site.der", True)]


SCRIPTS = {
    "2.8.7": "kmodsign sha512 /var/lib/shim-signed/mok/MOK.priv /var/lib/shim-signed/mok/MOK.der\n. /etc/dkms/framework.conf\n",
    "3.0.3": ". /etc/dkms/framework.conf\n",
    "3.0.4": "mok_signing_key= /var/lib/shim-signed/mok/MOK.priv /etc/dkms/framework.conf.d/*.conf\n",
}
UBUNTU, DKMS_OWN, SITE = "/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub", "/etc/site.der"


@pytest.mark.parametrize("dkms", ["", *SCRIPTS])
def test_a_dkms_that_takes_no_key_is_refused_the_sites(tmp_path, dkms):
    root = with_firmware(tmp_path)
    write(root, {"etc/site.der": "the site's", **({"usr/sbin/dkms": SCRIPTS[dkms]} if dkms else {})})
    with refused("GS-493", "before 3.0.4") if dkms in {"2.8.7", "3.0.3"} else nullcontext():
        signing.refuse_old_dkms(Machine(root), SITE)
    write(root, {UBUNTU.lstrip("/"): "the site's"})  # put there by the site: that is what signs
    if dkms != "3.0.3":
        signing.refuse_old_dkms(Machine(root), SITE)


def test_a_sites_key_must_be_there_and_roots_alone(tmp_path):
    key, certificate = tmp_path / "site.key", tmp_path / "site.der"
    certificate.write_bytes(CERTIFICATE)
    for wrong in (str(key), "/etc/x;reboot", '/etc/"; reboot'):
        with refused("GS-493"):
            signing.configuration(wrong, str(certificate))
    write(tmp_path, {"site.key": "secret"}, 0o644)
    with refused("readable by users other than root"):
        signing.configuration(str(key), str(certificate))
    key.chmod(0o600)
    assert f'mok_signing_key="{key}"' in signing.configuration(str(key), str(certificate))


def enrolling(tmp_path):
    return signing.Enrolment(Machine(with_firmware(tmp_path / "root")), process.environment(), check=False)


def test_the_one_time_password_is_in_a_file_for_root_alone(tmp_path, mokutil):
    enrolment = enrolling(tmp_path)
    assert enrolment.stage() == (True, "staged")
    kept = tmp_path / "state" / "mok-password"
    password = kept.read_text().strip()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert len(password) == 12
    assert password not in mokutil.with_name("mokutil.arguments").read_text()
    hashed = mokutil.with_name("mokutil.hash").read_text().strip()
    salt = hashed.split("$")[2]
    argv = ["openssl", "passwd", "-6", "-salt", salt, password]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip() == hashed
    assert [path.name for path in kept.parent.iterdir()] == ["mok-password"]

    digest = hashlib.sha1(CERTIFICATE).hexdigest()  # how mokutil names certificates
    fingerprint = ":".join(digest[at : at + 2] for at in range(0, 40, 2))
    mokutil.with_name("mokutil.new").write_text(f"[key 1]\nSHA1 Fingerprint: {fingerprint}\n")
    assert enrolment.stage() == (False, "staged")
    assert kept.read_text().strip() == password


def test_what_cannot_be_staged_leaves_no_password(tmp_path, mokutil, monkeypatch):
    mokutil.with_name("mokutil.exit").write_text("1")
    enrolment = enrolling(tmp_path)
    with refused("GS-494"):
        enrolment.stage()
    with monkeypatch.context() as patch:
        write = signing.files.write_atomically
        full = lambda path, *more: write(path, *more) if path.endswith(".hash") else 1 / 0  # noqa: E731
        patch.setattr(signing.files, "write_atomically", full)
        with pytest.raises(ZeroDivisionError):
            enrolment.stage()
    assert list((tmp_path / "state").iterdir()) == []
    (tmp_path / "state/mok-password").write_text("of an earlier request")
    with refused():
        enrolment.stage()
    assert (tmp_path / "state/mok-password").read_text() == "of an earlier request"


@pytest.mark.usefixtures("mokutil")
def test_the_password_is_kept_before_the_firmware_is_asked(tmp_path, monkeypatch):
    enrolment, listed, hashed = enrolling(tmp_path), (0, "", ""), (0, "", "")
    monkeypatch.setattr(signing.process, "output", Mock(side_effect=[listed, hashed, KeyboardInterrupt]))
    with pytest.raises(KeyboardInterrupt):
        enrolment.stage()
    assert len((tmp_path / "state/mok-password").read_text().strip()) == 12


KERNEL = "6.1.0-9-amd64"
PARAMS = {"driver_version": "580.95.05", "driver_module": "open", "kernels": [KERNEL]}
PLAIN = module({"version": "580.95.05", "license": "Dual MIT/GPL"})


class Host:
    """A host whose DKMS signs with `signs`; None signs nothing."""

    def __init__(self, root, monkeypatch):
        self.root, self.on, self.signs = root, False, b""
        self.module, self.did = b"", list[str]()
        self.tree = root / "dkms"
        (self.tree / "nvidia" / f"kernel-{KERNEL}-x86_64").mkdir(parents=True)
        monkeypatch.setattr(dkms, "_TREE", str(self.tree))
        monkeypatch.setattr(dkms.signing, "CONFIGURATION", str(root / "signing.conf"))
        monkeypatch.setattr(dkms.os.path, "exists", lambda _path: True)
        installed = (0, f"nvidia/580.95.05, {KERNEL}: installed\n", "")
        replace(monkeypatch, dkms.process, stream=self.stream, output=lambda *_words: installed)

    def choose(self, key):
        (self.root / "signing.conf").write_text(f'mok_signing_key="{key.key}"\nmok_certificate="{key.path}"\n')

    def stream(self, argv, *_more, **_named):
        self.did.append(argv[1])
        if argv[1] == "build" and "--force" in argv:
            self.module = self.signs
        return 0, []

    def secure_boot(self):
        return self.on

    def wanted_kernels(self, kernels):
        return list(kernels)

    def module_on_disk(self, _kernel):
        return {"version": "580.95.05", "flavour": "open", **firmware.signature(self.module)}

    def mend(self):
        dkms.mend(self, PARAMS, {}, lambda *_words: None, lambda _line: None)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return Key(tmp_path_factory.mktemp("site"), "the site"), Key(tmp_path_factory.mktemp("own"), "DKMS own")


@pytest.mark.parametrize("before", ["another", "nobody"])
def test_what_another_key_signed_is_built_anew_once(host, keys, before):
    site, own = keys
    host.choose(site)
    host.module, host.signs = signed(own) if before == "another" else PLAIN, signed(site)
    for _time in range(2):
        host.mend()
        assert host.did == ["build", "install"]


@pytest.mark.parametrize(("after", "says"), [("own", "signed by DKMS own"), ("none", "not signed")])
def test_a_build_that_another_key_signs_again_is_a_failure(host, keys, after, says):
    site, own = keys
    host.choose(site)
    host.module = host.signs = signed(own) if after == "own" else PLAIN
    with refused("GS-456", says, str(site.path)):
        host.mend()


def test_without_a_chosen_key_only_secure_boot_asks_for_a_signature(host, keys):
    host.module = host.signs = PLAIN
    host.mend()
    host.on = True
    with refused("not signed, and Secure Boot is on"):
        host.mend()
    host.module = signed(keys[1])
    host.mend()
