"""Keys that have expired, made by gpg at a time of before: nothing is signed with one, and what one signed is not taken."""

import subprocess

import pytest

from gpusetup.errors import PreflightError, UnreachableError
from gpusetup_fleet.supply.apt_repository import AptRoot
from gpusetup_fleet.supply.signing import Signer, signer
from tests.fleet.supply.conftest import NEEDED, deb, described, published
from tests.refusals import refused

pytestmark = NEEDED
THEN = "20240101T120000!"


def gpg(home, *words):
    argv = ["gpg", "--batch", "--yes", "--homedir", str(home), *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def expired(tmp_path):
    home = tmp_path / "keyring"
    home.mkdir(mode=0o700)
    gpg(home, "--faked-system-time", THEN, "--passphrase", "", "--quick-generate-key", "site", "rsa3072", "sign", "1d")
    return home


def test_an_expired_key_of_our_own_is_refused_with_the_way_out(expired):
    with refused(PreflightError, match="expired on 2024-01-02", hint=f"--homedir {expired} --quick-set-expire") as told:
        signer("", expired)
    fingerprint = (told.value.hint or "").split("--quick-set-expire ")[1].split()[0]
    gpg(expired, "--quick-set-expire", fingerprint, "2y")
    assert signer("", expired).fingerprint == fingerprint


def test_the_command_says_so_and_makes_nothing(expired, tmp_path, monkeypatch, says):
    monkeypatch.setenv("GNUPGHOME", str(expired))
    words = ("--gpu", "h100", "--os", "ubuntu24.04", "--sign-with", "site", "--out", tmp_path / "out")
    assert "expired on 2024-01-02" in says(5, "bundle", "torch", *words)
    assert not (tmp_path / "out").exists()


def test_a_repository_of_an_expired_key_is_not_taken(expired, tmp_path):
    fingerprint = gpg(expired, "--with-colons", "--list-keys").split("fpr:::::::::")[1][:40]
    then = _Then(fingerprint, str(expired))
    line = published(tmp_path / "site", [described(deb(tmp_path, "driver"))], then)
    root = AptRoot(tmp_path / "root", "debian12", "x86_64", (line,))
    with refused(UnreachableError, match="could not be fetched", hint="has expired"):
        root.refresh()


class _Then(Signer):
    """Signs as somebody did while the key was good."""

    def clear(self, path, target):
        words = ("--local-user", self.fingerprint, "--armor", "--output", str(target), "--clearsign", str(path))
        gpg(self.home, "--faked-system-time", THEN, *words)
