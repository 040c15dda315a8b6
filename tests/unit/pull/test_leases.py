"""The lease store as sites run it, by Debian's real etcd: three members, TLS with client certificates, users, failures."""

import contextlib
import http.server
import json
import shutil
import socket
import subprocess
import threading
import time

import pytest
from msgspec.structs import replace

from gpusetup.bootstrap.web import Unfetched
from gpusetup.cli.main import main
from gpusetup.errors import BadInputError
from gpusetup.model.pull import Budget
from gpusetup.pull import leases
from gpusetup.pull.client import login
from gpusetup.pull.leases import Access, Lease, Refused, take
from tests.certificates import Authority
from tests.unit.pull.test_pull import host, offer, went  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(
    shutil.which("etcd") is None or shutil.which("etcdctl") is None,
    reason="etcd is not installed (Debian: apt-get install etcd-server etcd-client)",
)


def _free(number):
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]


@contextlib.contextmanager
def members(folder, number, tls=None):
    """Run a cluster until the end of the block: its addresses and processes."""
    scheme = "https" if tls else "http"
    clients = [f"{scheme}://127.0.0.1:{port}" for port in _free(number)]
    peers = [f"http://127.0.0.1:{port}" for port in _free(number)]
    cluster = ",".join(f"m{index}={peer}" for index, peer in enumerate(peers))
    processes = []
    for index, (client, peer) in enumerate(zip(clients, peers, strict=True)):
        argv = ["etcd", "--name", f"m{index}", "--data-dir", folder / f"m{index}", "--initial-cluster", cluster]
        argv += ["--listen-client-urls", client, "--advertise-client-urls", client]
        argv += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        if tls:
            argv += ["--cert-file", tls[0], "--key-file", tls[0], "--trusted-ca-file", tls[1], "--client-cert-auth"]
        processes.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        yield clients, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def patiently(budget, *words):
    """Take a place as soon as the cluster has a leader."""
    until = time.monotonic() + 60
    while isinstance(got := take(budget, *words), Refused) and got.away:
        assert time.monotonic() < until, got
        time.sleep(0.2)
    return got


def test_a_member_that_dies_while_hosts_ask_is_passed_over_and_nothing_is_overdrawn(tmp_path):
    with members(tmp_path, 3) as (clients, processes):
        budget = Budget(leases=",".join(clients), at_a_time=3)
        patiently(budget, "first", "").give_back()
        got, held, most = {}, set(), [0]
        counting = threading.Lock()

        def ask(name):
            lease = patiently(budget, name, "")
            if isinstance(lease, Lease):
                with counting:
                    held.add(name)
                    most[0] = max(most[0], len(held))
                time.sleep(0.3)
                with counting:
                    held.discard(name)
                lease.give_back()
            got[name] = lease

        asking = [threading.Thread(target=ask, args=(f"gpu{number}",)) for number in range(12)]
        for number, one in enumerate(asking):
            one.start()
            if number == 5:
                processes[0].kill()
        for one in asking:
            one.join()
        assert sum(isinstance(lease, Lease) for lease in got.values()) >= 1
        assert most[0] <= 3
        after = patiently(budget, "after", "")
        assert isinstance(after, Lease), "two of three go on"
        after.give_back()
        processes[1].kill()
        leases_timeout = leases._TIMEOUT
        leases._TIMEOUT = 3.0
        try:
            alone = take(budget, "last", "")
        finally:
            leases._TIMEOUT = leases_timeout
        assert isinstance(alone, Refused), "one of three decides nothing"
        assert alone.away


def test_client_certificates_and_users_open_it_and_their_lack_does_not(tmp_path, monkeypatch):
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    # An environment that trusts others does not take the place of what was named.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(Authority(tmp_path / "other").certificate))
    pair, client = authority.pair("127.0.0.1", file="server.pem"), authority.pair("gpu07", file="client.pem")
    ca = str(authority.certificate)
    with members(tmp_path, 1, (pair, ca)) as ((address,), _):
        budget = Budget(leases=address, at_a_time=1)
        access = Access(ca, str(client))
        patiently(budget, "gpu07", "", access).give_back()
        for wrong in (Access(ca), Access(certificate=str(client))):
            refused = take(budget, "gpu07", "", wrong)
            assert isinstance(refused, Refused)
            assert refused.away
        tool = ["etcdctl", "--endpoints", address, "--cacert", ca, "--cert", client, "--key", client]

        def run(*words):
            subprocess.run(
                [*tool, *words], check=True, capture_output=True, env={"ETCDCTL_API": "3", "PATH": "/usr/bin"}
            )

        run("user", "add", "root:r00t")
        run("user", "grant-role", "root", "root")
        run("user", "add", "hosts:s3cret")
        run("role", "add", "hosts")
        run("role", "grant-permission", "--prefix=true", "hosts", "readwrite", "gpusetup/")
        run("user", "grant-role", "hosts", "hosts")
        run("auth", "enable")
        assert isinstance(take(budget, "gpu07", "", access), Refused), "nobody without a name any more"
        named = take(budget, "gpu07", "", access._replace(login=("hosts", "s3cret")))
        assert isinstance(named, Refused)
        assert "CommonName of client" in named.text, "etcd's own words, which the guide explains"
        nameless = Access(ca, str(authority.pair("gpu07", file="nameless.pem", common=False)))
        assert isinstance(take(budget, "gpu07", "", nameless._replace(login=("hosts", "guess"))), Refused)
        lease = take(budget, "gpu07", "", nameless._replace(login=("hosts", "s3cret")))
        assert isinstance(lease, Lease), lease
        assert lease.tell("lock", failed=True)
        lease.give_back()


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS with client certificates"])
def test_each_hosts_own_user_writes_the_keys_of_that_host_alone(encrypted, tmp_path, capsys):
    pair, access, shown, named = None, Access(), [], []
    if encrypted:
        authority = Authority(tmp_path)
        ca, client = str(authority.certificate), str(authority.pair("gpu07", file="client.pem", common=False))
        pair, access = (authority.pair("127.0.0.1", file="server.pem"), ca), Access(ca, client)
        shown, named = ["--cacert", ca, "--cert", client, "--key", client], ["--ca", ca, "--lease-certificate", client]
    with members(tmp_path, 1, pair) as ((address,), _):
        patiently(Budget(leases=address, at_a_time=1), "first", "", access).give_back()

        def etcdctl(*words):
            subprocess.run(
                ["etcdctl", "--endpoints", address, *shown, *words], check=True, capture_output=True,
                env={"ETCDCTL_API": "3", "PATH": "/usr/bin"},
            )  # fmt: skip

        for words in (("user", "add", "root:r00t"), ("user", "grant-role", "root", "root"), ("auth", "enable")):
            etcdctl(*words)
        (tmp_path / "root.login").write_text("root:r00t")
        (tmp_path / "root.login").chmod(0o600)
        administrator = ["--leases", address, "--lease-login", str(tmp_path / "root.login"), *named]
        (tmp_path / "site").mkdir()
        for name in ("gpu07", "gpu08", "gpu07"):  # a second call makes a new password
            words = ["fleet", "token", str(tmp_path / "site"), name, "--out", str(tmp_path / f"{name}.token")]
            assert main([*words, *administrator, "--lease-out", str(tmp_path / f"{name}.login")]) == 0
        logins = {name: login(tmp_path / f"{name}.login") for name in ("gpu07", "gpu08")}
        assert all(password not in capsys.readouterr().err for _, password in logins.values())
        budget = Budget(leases=address, at_a_time=1, of_a_domain=1, failures=1)
        own = take(budget, "gpu07", "rack1", access._replace(login=logins["gpu07"]), "lock")
        assert isinstance(own, Lease), own
        full = take(budget, "gpu08", "rack1", access._replace(login=logins["gpu08"]), "lock")
        assert isinstance(full, Refused)
        assert not full.away
        mine = leases._Etcd(address, access._replace(login=logins["gpu07"]))
        for key in ("gpusetup/changing/gpu08/rack1", "gpusetup/failed/gpu08/lock", "gpusetup/other", "else"):
            with pytest.raises(Unfetched, match="permission denied"):
                mine.ask("kv/put", key=leases._coded(key), value="")
        assert own.tell("lock", failed=True)
        own.give_back()
        stopped = take(budget, "gpu08", "rack1", access._replace(login=logins["gpu08"]), "lock")
        assert isinstance(stopped, Refused)
        assert "failed on 1 host, and" in stopped.text
        assert main(["fleet", "token", str(tmp_path / "site"), "gpu07", "--remove", *administrator]) == 0
        assert isinstance(take(budget, "gpu07", "rack1", access._replace(login=logins["gpu07"]), "lock"), Refused)
        for name in ("root", "backup"):  # a host may have the name of a user that was there
            if name == "backup":
                etcdctl("--user", "root:r00t", "user", "add", "backup:b4ck")
            words = ["fleet", "token", str(tmp_path / "site"), name, "--out", str(tmp_path / f"{name}.token")]
            assert main([*words, *administrator, "--lease-out", str(tmp_path / f"{name}.own")]) == 0
            taken = leases._Etcd(address, access._replace(login=login(tmp_path / f"{name}.own")))
            with pytest.raises(Unfetched, match="permission denied"):
                taken.ask("auth/user/list")
            assert main(["fleet", "token", str(tmp_path / "site"), name, "--remove", *administrator]) == 0
        for user, password in (("root", "r00t"), ("backup", "b4ck")):
            assert leases._Etcd(address, access).ask("auth/authenticate", name=user, password=password)["token"]


@pytest.mark.parametrize(
    "more",
    [
        ["--leases", "http://e:2379"],
        ["--lease-out", "x"],
        ["--reader", "--leases", "http://e:2379"],
        ["--leases", "http://e:2379", "--lease-login", "same", "--lease-out", "same"],
    ],
)
def test_half_of_what_a_user_of_the_store_needs_makes_no_token(tmp_path, more):
    (tmp_path / "site").mkdir()
    assert main(["fleet", "token", str(tmp_path / "site"), "gpu07", "--out", str(tmp_path / "token"), *more]) == 3
    assert not (tmp_path / "token").exists()


def test_a_lease_that_the_store_ended_is_known_at_the_next_renewal(store, monkeypatch):
    monkeypatch.setattr(leases, "_LIFE", 6)
    lease = take(Budget(leases=store, at_a_time=9), "gpu07", "")
    assert isinstance(lease, Lease)
    lease.store.ask("lease/revoke", ID=lease.number)
    lease.keeper.join(30)
    assert lease.lost == "the lease store ended it"
    lease.give_back()


@pytest.mark.parametrize(
    "answer", ["[]", "5", "not json", "{}", '{"result": 5}', '{"result": {"TTL": "x"}}', '{"result": null}']
)
def test_an_answer_that_is_none_is_an_error_with_a_reason_and_ends_no_thread(answer, monkeypatch):
    granting: list[bool] = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            grants = self.path.endswith("grant") and granting[-1]
            text = ('{"ID": "7"}' if grants else answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        for grants in (False, True):
            granting.append(grants)
            refused = take(Budget(leases=address, at_a_time=1, failures=1), "gpu07", "")
            assert isinstance(refused, Refused)
            assert refused.away
            assert refused.text
        monkeypatch.setattr(leases, "_LIFE", 0.6)
        held = Lease(leases._Etcd(address, Access()), "7", "gpu07", "")
        time.sleep(1.5)
        assert held.keeper.is_alive()
        assert held.lost.startswith("the lease store did not answer: ")
        held.give_back()
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with members(tmp_path_factory.mktemp("etcd"), 1) as ((address,), _):
        patiently(Budget(leases=address, at_a_time=1), "first", "").give_back()
        yield address


def test_after_enough_failures_of_a_lock_no_other_host_begins_it(store):
    budget = Budget(leases=store, failures=2)
    for name in ("gpu1", "gpu2"):
        lease = take(budget, name, "", None, "lock-a")
        assert isinstance(lease, Lease)
        assert lease.tell("lock-a", failed=True)
        lease.give_back()
    refused = take(budget, "gpu3", "", None, "lock-a")
    assert isinstance(refused, Refused)
    assert (refused.away, "failed on 2 hosts" in refused.text) == (False, True)
    other = take(budget, "gpu3", "", None, "lock-b")
    assert isinstance(other, Lease), "another lock begins anew"
    other.give_back()
    mended = take(budget, "gpu1", "", None, "lock-a")
    assert isinstance(mended, Lease), "a host that failed may try again"
    assert mended.tell("lock-a", failed=False)
    mended.give_back()
    after = take(budget, "gpu3", "", None, "lock-a")
    assert isinstance(after, Lease)
    after.give_back()


def test_a_failing_pull_counts_and_a_reboot_that_is_due_holds_the_place(host, collector, keys, locks, store):  # noqa: F811
    settings, told = host
    budget = Budget(leases=store, at_a_time=1, failures=1, reboot_hours=1)
    offer(collector, keys, locks[0], budget=budget)
    told["host"] = {"state": "pending-reboot", "changed": 3, "pending": ["a new driver"]}
    told["code"] = 9
    assert went(settings) == ("pending-reboot", True)
    near = take(budget, "gpu99", "", None, locks[0].digest)
    assert isinstance(near, Refused), "its place is held"
    assert went(settings) == ("pending-reboot", True)
    kept = settings.home / "kept.json"
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"boot": "the-boot-before"}))
    told["host"], told["code"] = {"state": "done", "changed": 0}, 0
    assert went(settings) == ("done", True), "after its reboot it has its own place"
    free = take(budget, "gpu99", "", None, locks[0].digest)
    assert isinstance(free, Lease), "seen good, it gave it back"
    free.give_back()
    offer(collector, keys, locks[1], budget=budget)
    told["code"] = 7
    told["host"] = {"state": "failed", "failure": {"reference": "GS-448", "message": "no module", "hint": "look"}}
    assert went(settings) == ("failed", True)
    stopped = take(budget, "gpu99", "", None, locks[1].digest)
    assert isinstance(stopped, Refused)
    assert "the fleet stops" in stopped.text
    allowed = take(replace(budget, failures=2), "gpu99", "", None, locks[1].digest)
    assert isinstance(allowed, Lease)
    allowed.give_back()


def test_a_login_that_others_may_read_or_that_is_none_changes_nothing(host, collector, keys, locks, store, tmp_path):  # noqa: F811
    settings, told = host
    offer(collector, keys, locks[0], budget=Budget(leases=store, at_a_time=1))
    login = tmp_path / "login"
    for mode, text, said in ((0o644, "hosts:s3cret", "others may read"), (0o600, "hosts", "NAME:PASSWORD")):
        login.write_text(text)
        login.chmod(mode)
        with pytest.raises(BadInputError, match=said) as refused:
            went(settings._replace(login=login))
        assert "s3cret" not in str(refused.value.to_document())
    assert told["applied"] == []
