"""Who may change what: a file of root's, asked before a host and before a password; what is refused is on record."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from gpusetup.drive import policy
from gpusetup.drive.argv import Reach
from gpusetup.drive.policy import permitted
from gpusetup.errors import PreflightError
from gpusetup.model.audit import AuditWho
from tests.refusals import refused
from tests.stored import stored

RULES = stored("policy_rules.txt")
FLEET = Reach(inventory="/srv/inventories/fleet.ini", limit="training")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A policy of root's: whoever runs this is taken for root."""
    uid = os.getuid()
    found = os.stat_result

    def owned(result):
        return found((*result[:4], 0 if result.st_uid == uid else result.st_uid, *result[5:10]))

    if uid:
        fstat = os.fstat
        monkeypatch.setattr(policy.os, "fstat", lambda descriptor: owned(fstat(descriptor)))
        stat = type(tmp_path).stat
        monkeypatch.setattr(type(tmp_path), "stat", lambda self, **words: owned(stat(self, **words)))
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    path = folder / "policy.toml"
    path.write_text(RULES)
    path.chmod(0o644)
    return path


def may(place, who, command, reach, monkeypatch, *groups):
    monkeypatch.setattr(policy, "_person", lambda: (who, {who, "*", *groups}))
    refusals = []
    try:
        permitted(command, reach, {"GPUSETUP_STATE": str(place.parents[1] / "state")}, place)
    except PreflightError as refusal:
        refusals.append(refusal)
    assert [(one.reference, bool(one.hint)) for one in refusals] in ([], [("GS-944", True)])
    return refusals[0].message if refusals else ""


def test_what_a_rule_allows_and_no_more(place, monkeypatch):
    def asked(who, command="apply", reach=FLEET, *groups):
        return may(place, who, command, reach, monkeypatch, *groups)

    assert asked("bob", "remove", replace(FLEET, limit=None, passthrough=("-e", "x=1")), "@ops") == ""
    assert asked("bob") == "bob may not apply /srv/inventories/fleet.ini"
    assert asked("bob", "remove") == "bob may not remove hosts from here"
    assert asked("bob", "apply", Reach()) == "", "this machine is open to all"
    for limit in ("training", "lab,training", "training:!gpu7", "training:&rack7", "training[0:9]"):
        assert asked("alice", "apply", replace(FLEET, limit=limit)) == "", limit
    for limit in (None, "", "all", "*", "~tr.*", "training,gpu9", "!gpu7", "@file", "training*", "serving:&training"):
        assert asked("alice", "apply", replace(FLEET, limit=limit)).startswith("alice may not apply"), limit
    assert asked("alice", "rollback") == "alice may not rollback hosts from here"
    for inventory in ("/srv/other.ini", "/srv/inventories/../other.ini", "gpu1,gpu2,"):
        assert asked("alice", "apply", replace(FLEET, inventory=inventory)) != "", inventory
    for away in (("-iother",), ("-l", "all"), ("--ssh-common-args=-oProxyCommand=id",)):
        assert asked("alice", "apply", replace(FLEET, passthrough=away)) != "", away
    assert asked("alice", "apply", replace(FLEET, vault_password_file="/home/alice/program")) != ""
    assert asked("alice", "apply", replace(FLEET, extra_vars=("gpusetup_torch=2.9.*",))) == ""
    host = "ansible_host=10.0.0.9"
    for extra in (host, f"gpusetup_torch=2.9 {host}", "gpusetup_x={{lookup('pipe','id')}}", "@more.yml", '{"a": 1}'):
        assert asked("alice", "apply", replace(FLEET, extra_vars=(extra,))) != "", extra


def test_who_logged_in_counts_and_only_root_is_believed_what_sudo_says(monkeypatch):
    def called(uid, **known):
        monkeypatch.setattr(policy.os, "getuid", lambda: uid)
        monkeypatch.setattr(policy, "who", lambda: AuditWho(user="any", machine="here", **known))
        return policy._person()[0]

    assert called(0, login="daemon", sudo="bin") == "daemon"
    assert called(0, sudo="bin") == "bin"
    assert called(0) == "root"
    assert called(1, sudo="root") == "daemon"
    assert called(1, login="bin") == "bin"
    monkeypatch.setattr(policy, "who", lambda: AuditWho(user="any", machine="here", login="daemon"))
    assert policy._person()[1] == {"daemon", "*", "@daemon"}


@pytest.mark.parametrize("harm", ["file", "folder", "text", "field"])
def test_a_policy_that_is_not_roots_or_is_none_stops_every_change(place, harm, tmp_path):
    if harm in ("file", "folder"):
        (place if harm == "file" else place.parent).chmod(0o777)
    else:
        place.write_text("[[allow]\n" if harm == "text" else '[[allow]]\nwhom = ["alice"]\n')
    with refused(PreflightError, "GS-943", hint="root"):
        permitted("apply", Reach(), {"GPUSETUP_STATE": str(tmp_path / "state")}, place)


def test_apply_is_refused_before_a_host_or_a_password_is_asked_and_plan_is_open(place, tmp_path, monkeypatch, printed):
    monkeypatch.setattr(policy, "PLACE", place)
    monkeypatch.setattr(policy, "_person", lambda: ("eve", {"eve", "*"}))
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))
    (tmp_path / "fleet.ini").write_text("gpu1 ansible_connection=local gpusetup_nonsense=1\n")
    for command in ("apply", "remove", "rollback"):
        assert printed(5, command, tmp_path / "fleet.ini", "-K")["error"]["reference"] == "GS-944"
        assert not (tmp_path / "state/runs").exists(), "no run was begun"
    assert [line["event"] for line in printed(0, "fleet", "audit")["lines"]] == ["refused"] * 3


def test_a_process_that_asked_for_a_password_writes_no_core_file_and_lets_no_other_read_its_memory():
    code = (
        "import ctypes, resource; from gpusetup.drive.secrets import keep_to_myself; keep_to_myself();"
        "print(*resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3))"  # PR_GET_DUMPABLE
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "0 0 0\n"
