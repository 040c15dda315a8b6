"""Which apply a host goes back to."""

import pytest
from msgspec import UNSET

from gpusetup.cli.rollback import past_of
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.model.applied import Verified
from gpusetup.model.lifecycle import Past
from gpusetup.model.settings import Exporter, MigInstances, MigLayout
from gpusetup.plan.lifecycle import choose
from tests.hosts.machines import changed
from tests.records import lock_of
from tests.refusals import refused


def past(identity, version="580", verdict="pass", *, simulated=False, **wanted):
    verified = None if verdict is None else Verified(verdict=verdict, simulated=simulated)
    lock = lock_of(driver=version)
    lock = changed(lock, wanted={"packages": None, "manage_driver": False, **wanted}) if wanted else lock
    return Past(id=identity, lock=lock, packages={"nvidia": version}, verified=verified, simulated=simulated)


def test_another_mig_layout_is_another_state_of_the_same_versions():
    def cut(identity, profile):
        instances = (MigInstances(profile=profile, count=7),)
        return past(identity, mig=(MigLayout(gpu="0000:00:06.0", enabled=True, instances=instances),))

    now = cut("a2", "1g.35gb")
    assert choose((cut("a1", "1g.18gb"), now), "a2").id == "a1"
    with pytest.raises(PreflightError):
        choose((cut("a1", "1g.35gb"), now), "a2")


def test_an_exporter_that_listens_elsewhere_is_another_state_but_not_one_with_other_reasons():
    def listening(identity, address, why=""):
        return past(identity, monitoring=Exporter(kind="textfile", listen=address, why=why))

    history = (past("a1", monitoring=UNSET), listening("a2", "127.0.0.1:9100"), listening("a3", "0.0.0.0:9100"))
    assert choose(history, "a3").id == "a2"
    assert choose((*history[:2], listening("a3", "127.0.0.1:9100", "asked for")), "a3").id == "a1"


def test_the_last_that_verified_and_is_another_one():
    history = (past("a1", "570"), past("a2", "575", "fail"), past("a3", "580"), past("a4", "580"))
    assert choose(history, "a4").id == "a1"


def test_a_failed_apply_goes_back_to_the_last_good_one_even_of_the_same_versions():
    history = (past("a1", "570"), past("a2", "580"))
    assert choose(history, "").id == "a2"
    assert choose((*history, past("a3", "590", "fail")), "a3").id == "a2"
    assert choose((*history, past("a3", "580", None)), "a3").id == "a2"


def test_a_skip_counts_for_a_simulated_gpu_alone():
    with refused(PreflightError, "GS-802"):
        choose((past("a1", "570", "skip"), past("a2")), "a2")
    assert choose((past("a1", "570", "skip", simulated=True), past("a2")), "a2").id == "a1"


def test_by_id_or_its_beginning():
    history = (past("20261120T1", "570", "fail"), past("20261121T2"))
    assert choose(history, "20261121T2", "20261120").lock == lock_of(driver="570")
    for unclear in ("2026112", "nonsense"):
        with refused(BadInputError, "GS-803"):
            choose(history, "", unclear)


def test_a_history_of_another_form_names_the_field_and_newer_fields_are_left_alone():
    told = {"id": "a1", "finished": "", "lock": {}, "verified": {"verdict": "pass", "newer": [1]}, "also": "newer"}
    current, (read,) = past_of({"current": "a1", "history": [told]}, "gpu07")
    assert (current, read.verified) == ("a1", Verified(verdict="pass"))
    with refused(BadInputError, "GS-805", match=r"history of gpu07 .*\$\[0\]\.verified\.verdict"):
        past_of({"history": [dict(told, verified={"verdict": 7})]}, "gpu07")
