"""Planted secrets: a vault, its password, a sudo password and a proxy's password are nowhere but where they were put."""

import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.lab.applying import Answer, gpusetup, vault
from tests.lab.lifecycle import lock, stand_ins
from tests.lab.process import run as search

SUDO, VAULT, PROXY, TOKEN = "lab-password", "Vault-7f3c9d", "Pr0xy-51ab2e", "Token-c0ffee99"
ON_THE_HOST = (
    "/etc", "/var/lib", "/var/log", "/var/cache", "/var/tmp", "/var/backups", "/root", "/home", "/tmp", "/opt",
    "/run",
)  # fmt: skip


@contextmanager
def listening():
    """Collect every argument list of this machine, hosts of the lab included, for as long as the block runs."""
    seen: set[bytes] = set()
    over = threading.Event()

    def watch():
        while not over.wait(0.03):
            for place in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):  # it has ended
                    seen.add(place.read_bytes())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_no_secret_is_in_arguments_logs_reports_facts_or_files(lab):
    (host,) = lab.hosts(flavour="ubuntu2404-like", machine="t4")
    wish = {"ansible_user": "ops", "gpusetup_driver": "580.*", "gpusetup_no_proxy": '["10.77.0.1"]'}
    inventory = lab.inventory([host], stand_ins(lab.repositories, **wish))
    place = lab.folder / "group_vars/all/vault.yml"
    vault(place, f"gpusetup_proxy: http://user:{PROXY}@10.77.0.1:9\nsite_token: {TOKEN}\n", VAULT)
    asked = ("-K", "--ask-vault-pass", "--format", "json")
    answers: list[Answer] = []
    older = lock(lab.folder, "570", "t4")

    def run(*words):
        answer = gpusetup(lab.folder, *words, *asked, stdin=f"{SUDO}\n{VAULT}\n")
        answers.append(answer)
        return answer

    with listening() as heard:
        assert run("facts", inventory, "--out", lab.folder / "facts.json").code == 0
        assert run("plan", inventory, "--out", lab.folder / "plan.json").code == 0
        done = run("apply", inventory)
        assert done.code == 0, done.out + done.err
        assert run("drift", inventory).code == 0
        assert run("verify", inventory, "--level", "quick", "--out", lab.folder / "verify.json").code in {0, 8}
        host.break_packages("nvidia-utils-570", "fail")
        failed = run("apply", inventory, "--lock", older)
        assert failed.code == 7, failed.out + failed.err
    assert place.read_text().startswith("$ANSIBLE_VAULT")

    assert any(b"ansible" in line for line in heard), "somebody listened"
    journal = host.ssh("journalctl", "--no-pager", "-o", "cat").stdout
    said = journal + "".join(answer.out + answer.err for answer in answers)
    for secret in (SUDO, VAULT, PROXY, TOKEN):
        assert not [line for line in heard if secret.encode() in line], f"{secret} is in an argument list"
        assert secret not in said, f"{secret} was said"
        places = [lab.folder, *(host.path(place) for place in ON_THE_HOST)]
        kept = search(["grep", "-rlaF", "--devices=skip", "-e", secret, *places], check=False, timeout=900).stdout
        assert not kept, f"{secret} is kept in {kept}"
    kept = host.path("/var/lib/gpusetup")
    assert kept.stat().st_mode & 0o066 == 0, "anybody may pass to the status, root alone looks around"
    open_to_all = [path.name for path in kept.rglob("*.json") if path.stat().st_mode & 0o077]
    assert set(open_to_all) <= {"status.json"}
