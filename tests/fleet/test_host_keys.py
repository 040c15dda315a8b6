"""Host keys gathered beforehand, from real SSH servers: proven ones are kept, changed ones refused, checking stays on."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpusetup.drive.argv import ansible_environment
from gpusetup.errors import BadInputError
from gpusetup_fleet.ssh import Key, authority, judge, kept, trusted, write
from tests.lab.process import run, until

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
KEYGEN = shutil.which("ssh-keygen")
pytestmark = pytest.mark.skipif(KEYGEN is None, reason="ssh-keygen is not installed (openssh-client)")
real = pytest.mark.skipif(SSHD is None, reason="sshd is not installed (openssh-server)")


def make(path):
    path.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "x", "-f", path], check=True)
    kind, text, _ = path.with_suffix(".pub").read_text().split()
    return Key(kind, text)


class Server:
    """An SSH server of one's own at every address of this machine's loopback."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.key = make(folder / "host")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more):
        """Serve with the key of the moment."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
        told = (
            f"Port {self.port}", f"HostKey {self.folder}/host", "UsePAM no", "MaxStartups 5000", "PidFile none",
            *more,
        )  # fmt: skip
        (self.folder / "sshd_config").write_text("\n".join(told) + "\n")
        user = {} if os.geteuid() else {"user": 65534, "group": 65534}
        for path in [*self.folder.iterdir(), self.folder]:
            if user:
                os.chown(path, 65534, 65534)
        argv = [str(SSHD), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        self.process = subprocess.Popen(argv, stderr=(self.folder.parent / "sshd.log").open("wb"), **user)

        def listens():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        until(listens, f"sshd listens, see {self.folder.parent}/sshd.log", 60)


@pytest.fixture
def server():
    with tempfile.TemporaryDirectory() as place:  # not below tmp_path, which root keeps to itself
        Path(place).chmod(0o755)
        folder = Path(place) / "sshd"
        folder.mkdir()
        made = Server(folder)
        yield made
        if made.process is not None:
            made.process.terminate()
            made.process.wait()


@pytest.fixture
def ask(tmp_path):
    def call(*words):
        environment = dict(os.environ) | {"GPUSETUP_STATE": str(tmp_path / "state"), "HOME": str(tmp_path)}
        argv = [sys.executable, "-m", "gpusetup", *words, "--format", "json"]
        done = run(argv, env=environment, cwd=tmp_path, check=False, timeout=900)
        return done.returncode, json.loads(done.stdout), done.stderr

    return call


def inventory(folder, port, hosts=3):
    path = folder / "fleet.ini"
    lines = [f"gpu{n} ansible_host=127.0.{n // 250}.{n % 250 + 1} ansible_port={port}" for n in range(hosts)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_runs_that_write_together_lose_no_key(tmp_path):
    key = Key("ssh-ed25519", "AAAA")
    with ThreadPoolExecutor(8) as runs:
        list(runs.map(lambda number: write(tmp_path / "known_hosts", {f"host{number}": [key]}), range(32)))
    assert kept(tmp_path / "known_hosts") == {f"host{number}": [key] for number in range(32)}


@real
def test_keys_are_shown_then_proven_then_known_and_a_changed_one_is_refused(tmp_path, server, ask):
    server.start()
    hosts = inventory(tmp_path, server.port)
    code, told, _ = ask("fleet", "known-hosts", hosts)
    assert code == 9
    assert {host["state"] for host in told["hosts"].values()} == {"unconfirmed"}
    assert told["hosts"]["gpu1"]["fingerprints"] == [f"{server.key.fingerprint} ssh-ed25519"]
    assert not Path(told["path"]).exists(), "nothing is kept without proof"

    (tmp_path / "trusted.txt").write_text(f"gpu0 {server.key.fingerprint}\ngpu1 256 {server.key.fingerprint}\n")
    code, told, _ = ask("fleet", "known-hosts", hosts, "--trusted", tmp_path / "trusted.txt")
    assert [host["state"] for host in told["hosts"].values()] == ["confirmed", "confirmed", "unconfirmed"]
    assert set(kept(Path(told["path"]))) == {f"[127.0.0.1]:{server.port}", f"[127.0.0.2]:{server.port}"}
    # Ansible reads that file: of the first two only the login is missing, the third one's key is not trusted.
    code, facts, _ = ask("facts", hosts)
    why = {name: failure["message"] for name, failure in facts["failures"].items()}
    assert "Permission denied" in why["gpu0"]
    assert "Permission denied" in why["gpu1"]
    assert "Host key verification failed" in why["gpu2"]

    old, server.key = server.key, make(server.folder / "host")
    server.start()
    code, told, _ = ask("fleet", "known-hosts", hosts, "--accept")
    assert code == 5
    assert [host["state"] for host in told["hosts"].values()] == ["changed", "changed", "accepted"]
    assert kept(Path(told["path"]))[f"[127.0.0.1]:{server.port}"] == [old]
    code, told, _ = ask("fleet", "known-hosts", hosts, "--trusted", tmp_path / "trusted.txt")
    assert [host["state"] for host in told["hosts"].values()] == ["another-key", "another-key", "known"]
    (tmp_path / "trusted.txt").write_text(f"[127.0.0.1]:{server.port} {server.key.kind} {server.key.text}\n")
    code, told, _ = ask("fleet", "known-hosts", hosts, "--trusted", tmp_path / "trusted.txt")
    assert told["hosts"]["gpu0"]["state"] == "replaced"
    assert kept(Path(told["path"]))[f"[127.0.0.1]:{server.port}"] == [server.key]


@real
def test_a_ca_that_signed_the_hosts_key_is_enough(tmp_path, server, ask):
    make(tmp_path / "ca")
    words = ("-q", "-s", tmp_path / "ca", "-h", "-I", "gpu0", "-n", "127.0.0.1", server.folder / "host.pub")
    subprocess.run(["ssh-keygen", *words], check=True)
    server.start(f"HostCertificate {server.folder}/host-cert.pub")
    hosts = inventory(tmp_path, server.port, 2)
    code, told, _ = ask("fleet", "known-hosts", "--ca", tmp_path / "ca.pub", "--for", "127.0.0.*")
    assert code == 0
    assert Path(told["path"]).read_text().startswith("@cert-authority 127.0.0.* ssh-ed25519 ")
    _, facts, _ = ask("facts", hosts)
    why = {name: failure["message"] for name, failure in facts["failures"].items()}
    assert "Permission denied" in why["gpu0"]
    assert "Host key verification failed" in why["gpu1"], "the certificate is another host's"


@real
def test_many_are_asked_at_once(tmp_path, server, ask):
    server.start()
    hosts = inventory(tmp_path, server.port, 200)
    (tmp_path / "trusted.txt").write_text("".join(f"gpu{n} {server.key.fingerprint}\n" for n in range(199)))
    code, told, _ = ask("fleet", "known-hosts", hosts, "--trusted", tmp_path / "trusted.txt")
    assert code == 9
    states = [host["state"] for host in told["hosts"].values()]
    assert (states.count("confirmed"), states.count("unconfirmed")) == (199, 1)


def test_fingerprints_are_read_as_they_come(tmp_path):
    key, other = make(tmp_path / "one"), make(tmp_path / "two")
    names = {"gpu1": "gpu1", "10.0.0.1": "gpu1", "gpu1.example": "gpu1", "gpu2": "gpu2"}
    asked = (("-r", "gpu1.example."), ("-l",))
    sshfp, shown = (run(["ssh-keygen", *words, "-f", tmp_path / "one.pub"]) for words in asked)
    for text in (
        sshfp.stdout, f"10.0.0.1,gpu1 {key.kind} {key.text}\n", f"gpu1 {shown.stdout}",
        f"gpu1 {key.fingerprint}\nnot-ours {other.fingerprint}\n",
    ):  # fmt: skip
        (tmp_path / "list").write_text(text)
        assert trusted(tmp_path / "list", names) == {"gpu1": {key.fingerprint}}, text
    folder = tmp_path / "consoles"
    folder.mkdir()
    (folder / "gpu2.log").write_text(
        "[   12.3] cloud-init: ###\n-----BEGIN SSH HOST KEY FINGERPRINTS-----\n"
        f"256 {other.fingerprint} root@gpu2 (ED25519)\n-----END SSH HOST KEY FINGERPRINTS-----\n"
    )
    (folder / "unknown").write_text(key.fingerprint)
    assert trusted(folder, names) == {"gpu2": {other.fingerprint}}
    with pytest.raises(BadInputError):
        trusted(tmp_path / "nowhere", names)


def test_what_is_thought_of_a_key(tmp_path):
    one, two = make(tmp_path / "one"), make(tmp_path / "two")
    rsa = Key("ssh-rsa", one.text)
    may = {one.fingerprint}
    assert judge([one], [], may, accept=False) == ("confirmed", [one])
    assert judge([two], [], may, accept=True) == ("another-key", [])
    assert judge([two], [one], None, accept=True) == ("changed", [one])
    assert judge([one], [two], may, accept=False) == ("replaced", [one])
    assert judge([one], [one], None, accept=False) == ("known", [one])
    assert judge([one, rsa], [], {one.fingerprint}, accept=False)[0] == "confirmed"


def test_other_lines_of_the_file_stay(tmp_path):
    one, two = make(tmp_path / "one"), make(tmp_path / "two")
    path = tmp_path / "known_hosts"
    ca = authority(tmp_path / "two.pub", "*.gpu.example")
    path.write_text(f"# ours\nother {two.kind} {two.text}\ngpu1 {two.kind} {two.text}\n")
    write(path, {"gpu1": [one]}, [ca])
    write(path, {"gpu1": [one]}, [ca])
    kept_lines = ["# ours", f"other {two.kind} {two.text}", ca, f"gpu1 {one.kind} {one.text}"]
    assert path.read_text().splitlines() == kept_lines
    for bad in ("", "*.x y", "a\nb"):
        with pytest.raises(BadInputError):
            authority(tmp_path / "two.pub", bad)
    with pytest.raises(BadInputError):
        authority(tmp_path / "two", "*.x")


def test_the_file_is_read_beside_the_sites_and_a_persons_own_arguments_stay(tmp_path):
    places = {"collections": tmp_path, "package": tmp_path / "gpusetup", "events": tmp_path / "events"}
    own = {"HOME": "/home/x", "ANSIBLE_SSH_EXTRA_ARGS": "-F mine"}
    told = ansible_environment(own, **places, known_hosts=tmp_path / "known_hosts")
    files = f"/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2 {tmp_path}/known_hosts"
    assert told["ANSIBLE_SSH_EXTRA_ARGS"] == f"-F mine -o GlobalKnownHostsFile='{files}'"
    theirs = frozenset({("ssh_connection", "ssh_extra_args")})
    left = ansible_environment({"HOME": "/x"}, **places, known_hosts=tmp_path / "known_hosts", configured=theirs)
    assert "ANSIBLE_SSH_EXTRA_ARGS" not in left
    assert "StrictHostKeyChecking" not in str(told)
