"""Which apply a host goes back to."""

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.cli.rollback import past_of
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.model.applied import Verified
from gpusetup.model.lifecycle import Past
from gpusetup.model.settings import AppliedWanted, Exporter, MigInstances, MigLayout
from gpusetup.plan.lifecycle import choose
from tests.records import lock_of


def past(identity, version, verdict="pass", **more):
    simulated = bool(more.get("simulated"))
    verified = None if verdict is None else Verified(verdict=verdict, simulated=simulated)
    return Past(id=identity, lock=lock_of(driver=version), packages={"nvidia": version}, verified=verified, **more)


def test_the_last_that_verified_and_is_another_one():
    history = (past("a1", "570"), past("a2", "575", "fail"), past("a3", "580"), past("a4", "580"))
    assert choose(history, "a4").id == "a1"


def with_mig(item, profile):
    layout = MigLayout(gpu="0000:00:06.0", enabled=True, instances=(MigInstances(profile=profile, count=7),))
    wanted = AppliedWanted(packages=None, manage_driver=False, requirements=(), adopted=(), services=(), mig=(layout,))
    return replace(item, lock=replace(item.lock, wanted=wanted))


def test_another_mig_layout_is_another_state_of_the_same_versions():
    before, now = with_mig(past("a1", "580"), "1g.18gb"), with_mig(past("a2", "580"), "1g.35gb")
    assert choose((before, now), "a2").id == "a1"
    with pytest.raises(PreflightError):
        choose((with_mig(past("a1", "580"), "1g.35gb"), now), "a2")


def with_exporter(item, exporter):
    wanted = AppliedWanted(
        packages=None, manage_driver=False, requirements=(), adopted=(), services=(), monitoring=exporter
    )
    return replace(item, lock=replace(item.lock, wanted=wanted))


def test_an_exporter_that_listens_elsewhere_is_another_state_but_not_one_with_other_reasons():
    def listening(identity, address, why=""):
        return with_exporter(past(identity, "580"), Exporter(kind="textfile", listen=address, why=why))

    bare = with_exporter(past("a1", "580"), UNSET)
    history = (bare, listening("a2", "127.0.0.1:9100"), listening("a3", "0.0.0.0:9100"))
    assert choose(history, "a3").id == "a2"
    assert choose((*history[:2], listening("a3", "127.0.0.1:9100", "asked for")), "a3").id == "a1"


def test_a_failed_apply_goes_back_to_the_last_good_one_even_of_the_same_versions():
    history = (past("a1", "570"), past("a2", "580"))
    assert choose(history, "").id == "a2"
    assert choose((*history, past("a3", "590", "fail")), "a3").id == "a2"
    assert choose((*history, past("a3", "580", None)), "a3").id == "a2"


def test_a_skip_counts_for_a_simulated_gpu_alone():
    with pytest.raises(PreflightError) as stopped:
        choose((past("a1", "570", "skip"), past("a2", "580")), "a2")
    assert stopped.value.reference == "GS-802"
    assert choose((past("a1", "570", "skip", simulated=True), past("a2", "580")), "a2").id == "a1"


def test_by_id_or_its_beginning():
    history = (past("20261120T1", "570", "fail"), past("20261121T2", "580"))
    assert choose(history, "20261121T2", "20261120").lock == lock_of(driver="570")
    for unclear in ("2026112", "nonsense"):
        with pytest.raises(BadInputError) as stopped:
            choose(history, "", unclear)
        assert stopped.value.reference == "GS-803"


def test_a_history_of_another_form_names_the_field_and_newer_fields_are_left_alone():
    told = {"id": "a1", "finished": "", "lock": {}, "verified": {"verdict": "pass", "newer": [1]}, "also": "newer"}
    current, (read,) = past_of({"current": "a1", "history": [told]}, "gpu07")
    assert (current, read.verified) == ("a1", Verified(verdict="pass"))
    with pytest.raises(BadInputError, match=r"history of gpu07 .*\$\[0\]\.verified\.verdict") as raised:
        past_of({"history": [dict(told, verified={"verdict": 7})]}, "gpu07")
    assert raised.value.reference == "GS-805"
