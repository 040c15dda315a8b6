"""What DKMS built is signed with the key that was chosen; else it is built anew, and told when that did not help."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import dkms
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import firmware

from tests.lab.repository.elf import module
from tests.modules.stand_ins import refused, replace
from tests.unit.facts.signing import Key, signed

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
