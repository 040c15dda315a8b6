"""A pull against a real collector, with an apply that answers what a test says: what it takes, keeps and never does."""

import errno
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest
from msgspec.structs import replace

from gpusetup.bootstrap.effects import Effects
from gpusetup.errors import BadInputError
from gpusetup_fleet.model.pull import Budget, SignedOffer
from gpusetup_fleet.pull import client
from gpusetup_fleet.pull.client import Kept, pull, why_not
from gpusetup_fleet.pull.offers import opened, path_of, publish, put
from tests.flaky import serving

NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)


def went(settings):
    report, told = pull(settings, lambda _line: None)
    return report.state, told


def offer(collector, keys, lock, key="ours", kind="h100", **words):
    return publish(collector.folder, kind, lock, keys / key, **{"wave": 0, "budget": None, "days": 0, **words})[1]


def test_a_host_takes_its_lock_once_and_each_new_one(host, collector, keys, locks):
    settings, told = host
    assert went(settings) == ("no-lock", True)
    offer(collector, keys, locks[0])
    assert [went(settings)[0] for _ in range(3)] == ["done", "unchanged", "unchanged"]
    assert told["applied"] == [("apply", locks[0].digest)]
    known = collector.store.state().hosts["gpu01"].report
    assert (known.state, known.lock, known.domain) == ("unchanged", locks[0].digest, "rack7")
    assert "no budget is set, so no lease was taken" in collector.store.reports("gpu01")[2].notes
    assert (collector.server.config.app.counted["304"]) == 2
    offer(collector, keys, locks[1])
    assert went(settings) == ("done", True)
    assert told["applied"][1:] == [("apply", locks[1].digest)]


def test_while_the_collector_is_away_the_last_lock_counts_and_reports_wait(host, collector, keys, locks):
    settings, told = host
    offer(collector, keys, locks[0])
    failure = {"reference": "GS-448", "message": "no module", "hint": "look"}
    told["code"], told["host"] = 7, {"state": "failed", "failure": failure}
    assert went(settings) == ("failed", True)
    away = settings._replace(url="http://127.0.0.1:9")
    assert [went(away), went(away)] == [("failed", False)] * 2, "tried again later, and not at each pull"
    kept = msgspec.json.decode((settings.home / "kept.json").read_bytes(), type=Kept)
    (settings.home / "kept.json").write_bytes(msgspec.json.encode(replace(kept, again="2020-01-01T00:00:00Z")))
    told["code"], told["host"] = 0, {"state": "done", "changed": 1}
    assert went(away) == ("done", False), "it goes on by the lock of before"
    assert [went(away), went(away), went(away)] == [("unchanged", False)] * 3
    assert len(list((settings.home / "queue").iterdir())) == 3, "what says nothing new replaces the one before"
    assert went(settings) == ("unchanged", True)
    assert [one.state for one in collector.store.reports("gpu01")] == ["unchanged", "done", "failed", "failed"]
    assert not list((settings.home / "queue").iterdir())
    (settings.home / "offer.json").write_bytes(bytes(100))  # as a power cut leaves it
    assert went(away) == ("no-lock", False)
    assert went(settings) == ("unchanged", True), "it is fetched anew"


@pytest.mark.parametrize("harm", ["signer", "text", "class", "matrix", "older", "same"])
def test_an_offer_that_is_false_or_old_is_refused_and_the_lock_of_before_stays(host, collector, keys, locks, harm):
    settings, told = host
    first = offer(collector, keys, locks[0])
    old = path_of(collector.folder, "h100").read_bytes()
    offer(collector, keys, None)
    assert went(settings) == ("done", True)
    place = path_of(collector.folder, "h100")
    if harm == "signer":
        offer(collector, keys, locks[1], key="theirs")
    elif harm == "text":
        signed = msgspec.json.decode(place.read_bytes(), type=SignedOffer)
        place.write_bytes(msgspec.json.encode(replace(signed, offer=signed.offer.replace('"serial":2', '"serial":3'))))
    elif harm == "class":
        offer(collector, keys, locks[1], kind="v100")
        shutil.copy(path_of(collector.folder, "v100"), place)
    elif harm == "matrix":
        text = msgspec.json.encode(replace(first, serial=9, lock=locks[1]))
        (collector.folder / "text").write_bytes(text)
        words = ("-Y", "sign", "-q", "-f", keys / "ours", "-n", "gpusetup-matrix", collector.folder / "text")
        subprocess.run(["ssh-keygen", *words], check=True)
        signature = (collector.folder / "text.sig").read_text()
        place.write_bytes(msgspec.json.encode(SignedOffer(offer=text.decode(), signature=signature)))
    elif harm == "older":
        place.write_bytes(old)
    else:
        put(place, replace(first, serial=2, lock=locks[1]), keys / "ours")
    assert went(settings) == ("refused", True)
    report = collector.store.state().hosts["gpu01"].report
    assert (report.reference in ("GS-221", "GS-974", "GS-987"), report.lock) == (True, locks[0].digest)
    assert len(told["applied"]) == 1


def test_a_host_of_another_class_and_one_that_trusts_new_signers_take_the_next_offer(
    host, collector, keys, locks, tmp_path
):
    settings, _told = host
    offer(collector, keys, locks[0])
    assert went(settings) == ("done", True)
    offer(collector, keys, locks[1], kind="v100")
    (tmp_path / "signers").write_text("ops@site " + (keys / "theirs.pub").read_text())
    assert went(settings := settings._replace(kind="v100")) == ("done", True)
    old = path_of(collector.folder, "v100").read_bytes()
    offer(collector, keys, locks[0], key="theirs", kind="v100")
    assert went(settings := settings._replace(signers=tmp_path / "signers")) == ("done", True)
    path_of(collector.folder, "v100").write_bytes(old)
    assert went(settings) == ("refused", True)


def test_a_log_that_fails_keeps_no_place(host, collector, keys, locks, monkeypatch):
    given = []
    lease = SimpleNamespace(give_back=lambda: given.append("back"), lost="")
    monkeypatch.setattr(client, "take", lambda *_words: lease)
    offer(collector, keys, locks[0], budget=Budget(leases="http://store", at_a_time=1))

    with pytest.raises(OSError, match="No space"):
        pull(host[0], Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    assert given == ["back"]


def test_a_lock_that_ends_the_machine_is_not_begun_at_each_boot(host, collector, keys, locks, monkeypatch):
    settings, told = host
    offer(collector, keys, locks[0])
    with monkeypatch.context() as power:
        power.setattr(Effects, "gpusetup", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            went(settings)
    assert (went(settings), told["applied"]) == (("failed", True), [])
    assert "nobody knows how far it came" in collector.store.state().hosts["gpu01"].report.message


def test_offers_that_are_made_together_have_serials_of_their_own(collector, keys, locks):
    with ThreadPoolExecutor(4) as desks:
        made = list(desks.map(lambda _one: offer(collector, keys, locks[0]).serial, range(4)))
    assert sorted(made) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("option", "value"),
    [("days", "1e12"), ("days", "nan"), ("days", "-1"), ("wave", "9" * 20), ("at-a-time", "9" * 20)],
)
def test_an_offer_that_nobody_could_read_is_not_written(collector, keys, locks, says, option, value):
    made = offer(collector, keys, locks[0])
    words = ("--sign", keys / "ours", "--leases", "https://etcd.example:2379", "--stop-after", "1")
    says(3, "fleet", "offer", collector.folder, "h100", *words, f"--{option}", value)
    assert opened(path_of(collector.folder, "h100").read_bytes(), "here", keys / "signers", "h100") == made


def test_what_keeps_a_host_from_changing(collector, keys, locks):
    made = offer(collector, keys, locks[0], wave=1, days=1)
    digest = locks[0].digest
    for state, offered, kept, wave in (
        ("waiting", made, Kept(), 2),
        ("waiting", replace(made, expires="2026-11-23T11:00:00Z"), Kept(), 1),
        ("unchanged", made, Kept(applied=digest, state="done"), 2),
        ("pending-reboot", made, Kept(applied=digest, state="pending-reboot", boot="b1"), 1),
        ("failed", made, Kept(tried=digest, state="failed", again="2026-11-23T13:00:00Z"), 1),
        ("verify-failed", made, Kept(tried=digest, state="verify-failed", again="2026-11-23T13:00:00Z"), 1),
    ):
        assert why_not(offered, kept, wave, "b1", NOW).state == state, (state, kept)
    changes = [
        Kept(), Kept(applied=digest, state="pending-reboot", boot="b0"), Kept(tried="other", again="2026-11-24"),
        Kept(applied="x", state="done"), Kept(tried=digest, state="failed", again="2037-01-01T00:00:00Z"),  # a wrong clock
    ]  # fmt: skip
    assert [why_not(made, kept, 1, "b1", NOW) for kept in changes] == [None] * len(changes)


def test_without_an_answer_from_the_lease_store_nothing_changes(host, collector, keys, locks):
    settings, told = host
    offer(collector, keys, locks[0], budget=Budget(leases="http://127.0.0.1:9", at_a_time=1))
    assert went(settings) == ("waiting", True)
    report = collector.store.state().hosts["gpu01"].report
    assert (report.reference, told["applied"]) == ("GS-988", [])
    assert "does not answer" in report.message


def test_a_token_that_others_may_read_or_no_header_can_hold_is_neither_sent_nor_repeated(host, collector):
    settings, said = host[0], []
    settings.token.write_text("SECRET\u0151", encoding="utf-8")
    said += pull(settings, said.append)[0].notes
    settings.token.write_text("SECRET\nb", encoding="utf-8")
    with pytest.raises(BadInputError, match="is not one line") as told:
        pull(settings, said.append)
    assert "401" in "".join(said)
    assert "SECRET" not in f"{said}{told.value.to_document()}"
    host[0].token.chmod(0o644)
    with pytest.raises(BadInputError, match="others may read"):
        went(host[0])
    assert collector.store.reports("gpu01") == []


def test_a_collector_that_sends_a_byte_now_and_then_holds_no_host(host, monkeypatch):
    monkeypatch.setattr(client, "_PATIENCE", 0.3)
    with serving() as slow:
        slow.says("drips")
        assert went(host[0]._replace(url=slow.url)) == ("no-lock", False)


def test_a_lost_answer_is_no_second_report(host, collector, keys, locks):
    settings, _ = host
    offer(collector, keys, locks[0])
    assert went(settings) == ("done", True)
    sent = collector.store.reports("gpu01")[0]
    (settings.home / "queue" / "1.json").write_bytes(msgspec.json.encode(sent))
    assert went(settings) == ("unchanged", True)
    assert len(collector.store.reports("gpu01")) == 2
