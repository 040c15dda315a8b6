"""gpusetup_vgpu_token: refused where nothing would use it, planned where something is not as it should be."""

import pytest

from gpusetup.components.vgpu import VGPU
from gpusetup.errors import BadInputError
from gpusetup.model.facts import Licence, Service
from gpusetup.model.facts_machine import Storage
from gpusetup.model.settings import Settings
from gpusetup.plan.requests import as_delivered
from gpusetup.plan.settings import read_level
from gpusetup.rollout.options import _with_token
from tests.hosts.machines import changed
from tests.refusals import refused
from tests.unit.plan.conftest import changes

TOKEN = "client_configuration_token_gpusetup.tok"
GUEST = "ubuntu22.04-l4vgpu-grid"
WISH = Settings(vgpu_token="/site/a.tok", vgpu_token_sha256="aa", vgpu_feature="workstation")


def _facts(host, licence):
    service = Service(unit="nvidia-gridd.service", active="active", enabled="enabled")
    return changed(host(GUEST), services={"gridd": service}, licence=licence)


def test_a_bundle_for_a_licensed_guest_is_planned_like_the_guest(host):
    facts = as_delivered(changed(_facts(host, None), storage=Storage(p2pdma=False, nvidia_fs="2")))
    assert list(VGPU.refusals(facts, WISH)) == []
    assert facts.storage == Storage(p2pdma=False), "nvidia-fs comes instead"


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (None, "the token is missing"),
        (Licence(tokens={"other.tok": "aa"}), "the token is missing"),
        (Licence(tokens={TOKEN: "bb"}, feature=2), "another token is there"),
        (Licence(tokens={TOKEN: None}, feature=2), "another token is there"),
        (Licence(tokens={TOKEN: "aa"}, feature=2, server=True), "legacy licence server"),
        (Licence(tokens={TOKEN: "aa"}, feature=1), "FeatureType is 1, and workstation is 2"),
        (Licence(tokens={TOKEN: "aa"}, feature=2), None),
    ],
)
def test_the_plan_says_what_is_not_as_it_should_be(host, there, why):
    facts = _facts(host, there)
    found = changes(VGPU, facts, settings=WISH)
    assert [why in action.why for action in found] == ([True] if why else [])
    assert changes(VGPU, facts) == []


def test_it_is_refused_where_nothing_would_use_it(host):
    elsewhere = host("ubuntu24.04-rtx4090-open")
    assert [refusal.reference for refusal in VGPU.refusals(elsewhere, WISH)] == ["GS-434"]
    assert VGPU.refusals(_facts(host, None), WISH) == VGPU.refusals(elsewhere, Settings()) == ()


@pytest.mark.parametrize("level", [{"vgpu_token": "a.tok"}, {"vgpu_feature": "quadro"}, {"vgpu_token": ["/a"]}])
def test_what_it_cannot_be(level):
    with pytest.raises(BadInputError):
        read_level(level, "gpusetup.toml")


def test_a_token_that_cannot_be_read(tmp_path):
    token = tmp_path / "a.tok"
    with refused(BadInputError, "GS-433"):
        _with_token(Settings(vgpu_token=str(token)))
    token.write_text("secret")
    settings = _with_token(Settings(vgpu_token=str(token)))
    assert (bool(settings.vgpu_token_sha256), "secret" in str(settings)) == (True, False)
