"""Repositories, their keys and logins: no key, no repository; one wrong key, nothing written; no password that others read."""

import hashlib
import subprocess

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import download, openpgp, sources
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.download import bring, fetch
from ansible_collections.gpusetup.stack.plugins.modules import gpu_repo_source

from tests.flaky import CONTENT, serving
from tests.modules.stand_ins import refused, write
from tests.stored import stored_rows


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two real keys, made with gpg when it is there."""
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    made = {}

    def gpg(*words):
        base = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", ""]
        return subprocess.run([*base, *words], check=True, timeout=60, capture_output=True).stdout

    try:
        for name, kind in (("good", "rsa2048"), ("other", "ed25519")):
            gpg("--quick-generate-key", f"{name} <{name}@example.org>", kind, "sign", "never")
            listing = gpg("--with-colons", "--list-keys", name).decode()
            fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr"))
            armored = gpg("--armor", "--export", name).decode()
            made[name] = {"fingerprint": fingerprint, "armored": armored, "binary": gpg("--export", name)}
    except FileNotFoundError:
        pytest.skip("gpg is not on this machine")
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False)
    return made


def source(**words):
    return {"name": "cuda", "kind": "apt", "uris": ["https://example.org/repo/"], "suites": ["/"], **words}


NETWORK = {"proxy": "", "no_proxy": [], "ca_file": ""}
_BROKEN = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n???\n-----END PGP PUBLIC KEY BLOCK-----"


class TestFingerprints:
    @pytest.mark.parametrize(
        ("length", "head"), [(100, b"\x64"), (192, b"\xc0\x00"), (300, b"\xc0\x6c"), (9000, b"\xff\x00\x00\x23\x28")]
    )
    def test_lengths_of_the_new_form_are_read_like_those_of_the_old(self, length, head):
        body = b"\x04" + bytes(length - 1)
        old = b"\x99" + length.to_bytes(2, "big") + body
        assert openpgp.fingerprints(b"\xc6" + head + body) == openpgp.fingerprints(old)
        with pytest.raises(openpgp.BadKey):
            openpgp.fingerprints(b"\xc6" + head[:-1])

    @pytest.mark.parametrize("raw", [b"", b"hello", b"<html>404</html>", _BROKEN, b"\x98\x00", None])
    def test_what_is_no_key_is_refused(self, keys, raw):
        with pytest.raises(openpgp.BadKey):
            openpgp.fingerprints(keys["good"]["binary"][:100] if raw is None else raw)

    def test_the_armour_agrees_with_gpg(self, keys):
        """With its checksum: rpm --import takes no key without one."""
        for key in keys.values():
            assert openpgp.armored(key["binary"]).split() == key["armored"].encode().split()


class TestKeys:
    @pytest.mark.parametrize("beside", [False, True])
    def test_another_key_is_refused_with_both_fingerprints_also_beside_the_expected_one(self, keys, beside):
        both = openpgp.armored(keys["good"]["binary"] + keys["other"]["binary"]).decode()
        armored = both if beside else keys["other"]["armored"]
        with refused("GS-445", "not the expected one", *(key["fingerprint"] for key in keys.values())):
            sources.key_of(source(key={"fingerprints": [keys["good"]["fingerprint"]], "armored": armored}), NETWORK)

    @pytest.mark.parametrize(
        "key",
        [
            {},
            {"fingerprints": ["A4B469963BF863CC"], "armored": "x"},
            {"fingerprints": [], "armored": "x"},
            {"fingerprints": ["0" * 40], "armored": "x", "url": "https://example.org"},
            {"package": {"url": "https://example.org/k.deb", "sha256": "", "member": "x"}},
        ],
    )
    def test_a_key_that_proves_nothing_is_refused(self, key):
        with refused("GS-444"):
            sources.key_of(source(key=key), NETWORK)

    @pytest.mark.parametrize("packing", ["xz", "gzip", "none", "zstd"])
    def test_a_keyring_package_is_read_and_its_digest_compared(self, keys, tmp_path, packing):
        deb = keyring(tmp_path, keys["good"]["binary"], packing)
        digest = hashlib.sha256(deb.read_bytes()).hexdigest()
        package = {"url": deb.as_uri(), "sha256": digest, "member": "usr/share/keyrings/k.gpg"}
        assert sources.key_of(source(key={"package": package}), NETWORK) == keys["good"]["binary"]
        with refused("GS-443"):
            sources.key_of(source(key={"package": {**package, "sha256": "0" * 64}}), NETWORK)
        with refused("does not contain"):
            download.member_of_deb(deb.read_bytes(), "etc/passwd")


def keyring(folder, key, packing):
    """Build a keyring package as Debian's tools do."""
    tree = folder / "tree"
    control = "Package: k\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n"
    write(tree, {"DEBIAN/control": control, "usr/share/keyrings/k.gpg": key})
    deb = folder / "k.deb"
    argv = ["dpkg-deb", "--build", "-Z" + packing, "--root-owner-group", str(tree), str(deb)]
    try:
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("dpkg-deb is not on this machine")
    if done.returncode and packing == "zstd":
        pytest.skip("this dpkg-deb does not pack with zstd: " + done.stderr)
    assert done.returncode == 0, done.stderr
    return deb


class TestDefinitions:
    @pytest.mark.parametrize(
        "words",
        [
            {"name": "../x"}, {"name": "a b"}, {"name": "a\n"}, {"uris": ["https://example.org/\n"]},
            {"uris": ["https://example.org/x\nSigned-By: /tmp/k"]}, {"suites": ["a b"]}, {"uris": []},
            {"kind": "dnf", "gpgcheck": False, "repo_gpgcheck": False}, {"kind": "dnf", "like_suite": "bookworm"},
            {"kind": "dnf", "description": "x\n[evil]\nbaseurl=http://example.org"},
        ],
    )  # fmt: skip
    def test_nothing_of_a_source_reaches_another_line(self, words):
        with refused("GS-444"):
            sources.check(source(**words))

    def test_like_suite_takes_the_mirror_and_the_key_that_the_host_uses(self):
        known = [
            {"file": "/etc/apt/sources.list", "uri": "http://mirror/debian", "suites": ["bookworm"], "components": ["main"],
             "signed_by": "/k.gpg", "nvidia": False}
        ]  # fmt: skip
        wanted = source(uris=[], like_suite="bookworm", suites=["bookworm"], components=["contrib", "non-free"])
        ((text, _mode),) = sources.render(wanted, None, sources.Layout("/"), known).values()
        assert "URIs: http://mirror/debian\n" in text
        assert "Signed-By: /k.gpg\n" in text
        with refused("no package source"):
            sources.render(source(uris=[], like_suite="trixie"), None, sources.Layout("/"), known)

    def test_dnf_keeps_signatures_on(self):
        written = sources.render(source(kind="dnf", exclude=["a*"]), b"\x99key", sources.Layout("/"), [])
        text, _mode = written["/etc/yum.repos.d/cuda.repo"]
        assert "gpgcheck=1\nrepo_gpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-cuda\n" in text

    def test_another_entry_for_the_same_address_is_a_conflict_unless_it_is_replaced(self):
        entry = {
            "file": "/etc/apt/sources.list.d/old.list",
            "uri": "https://example.org/repo",
            "suites": ["/"],
            "signed_by": None,
        }
        assert sources.conflicts([source()], [entry], [], set()) == [entry]
        assert sources.conflicts([source()], [entry], ["https://example.org/"], set()) == []

    @pytest.mark.parametrize(("name", "address", "text", "left"), stored_rows("switched-off-entries.json"))
    def test_switching_off_leaves_the_other_entries_of_a_file(self, name, address, text, left):
        assert sources.without(name, text, [address]) == left


def test_a_file_in_which_one_repository_goes_and_another_comes(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "Layout", lambda root=str(tmp_path), real=sources.Layout: real(root))
    text = "[gone]\nbaseurl=http://old/x\nenabled=1\n[crb]\nbaseurl=http://new/x\nenabled=0\n"
    folder = "etc/yum.repos.d/"
    write(tmp_path, {folder + "a.repo": text, folder + "a.repo.rpmsave": text, folder + "old/b.repo": text})
    request = {"replace": ["http://old/"], "enable": ["crb"]}
    off = gpu_repo_source.switched_off(request, {})
    (found,) = gpu_repo_source.enabled(request, off).values()
    assert found == "[crb]\nbaseurl=http://new/x\nenabled=1\n"


SECRET, SPELLED = "s3cr%t:x/y", "s3cr%25t%3Ax%2Fy"


def written(kind, *uris, root="/"):
    source = {"name": "site", "kind": kind, "uris": list(uris), "suites": ["/"]}
    return sources.render(source, b"\x99\x00\x00", sources.Layout(root), [])


@pytest.mark.parametrize("kind", ["apt", "dnf", "zypper"])
def test_what_others_may_read_has_no_password(kind):
    files = written(kind, f"https://anna:{SPELLED}@mirror.example.org/cuda/")
    text = {path: content if isinstance(content, str) else "" for path, (content, _mode) in files.items()}
    secret = {path for path, content in text.items() if SECRET in content}
    assert len(secret) == 1
    assert {files[path][1] for path in secret} == {0o600}
    assert not [path for path, content in text.items() if SPELLED in content or "anna:" in content]
    assert any("https://mirror.example.org/cuda/" in content for content in text.values())
    plain = written(kind, "https://mirror.example.org/cuda/").values()
    assert {mode for _content, mode in plain} == {0o644}, "without a login nothing is secret"


def test_each_of_apts_addresses_has_its_own_login():
    files = written("apt", "https://a:b@one/x/", "http://two/", "https://c:d@three/")
    content, _mode = files["/etc/apt/auth.conf.d/site.conf"]
    assert str(content).splitlines()[1:] == [
        "machine https://one/x/ login a password b", "machine https://three/ login c password d",
    ]  # fmt: skip


@pytest.fixture
def site():
    with serving() as one:
        yield one


@pytest.mark.parametrize("trouble", ["broken", "chunked, broken", "hangs up", "503", "429"])
def test_what_passes_is_tried_again(site, trouble):
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert fetch(site.says(trouble, trouble, "whole"), {}, digest, pause=0.01) == CONTENT
    assert site.asked == 3


def test_the_endless_text_of_a_redirect_is_not_read(site):
    assert fetch(site.says("moved", "whole"), {}, seconds=1) == CONTENT
    assert site.handler.asked[1:] == ["/moved"]


def test_why_nothing_is_reached_is_told_in_words(tmp_path):
    reason, gone = "could not be downloaded: Connection refused", {"proxy": "http://127.0.0.1:9"}
    with refused("GS-442", reason):
        fetch("http://m.example/key", gone, pause=0.01)
    with refused("GS-479", reason):
        bring("http://m.example/x.run", gone, str(tmp_path), lambda *_words: None, pause=0)
