"""A proxy's password stands in the inventory and nowhere in what a run writes down."""

from pathlib import Path

import pytest

from gpusetup.cli.main import main
from gpusetup.components.parsing import holds_login, without_login

CAPTURED = Path(__file__).parents[2] / "hosts/ubuntu24.04-rtx4090-open/root"


def recorded(place, command, variables, *words):
    """Run a command on a host with these variables; return everything that it wrote."""
    inventory = place / "inventory.ini"
    inventory.write_text(f"here ansible_connection=local gpusetup_become=false {variables}\n")
    main([command, str(inventory), "--format", "json", *words])
    files = [*(place / "state").rglob("*"), *place.glob("facts.json")]
    return {path: path.read_text(errors="replace") for path in files if path.is_file()}


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))


def test_the_record_of_a_run_knows_the_proxy_without_its_password(tmp_path):
    variables = "gpusetup_candidates=false gpusetup_proxy=http://user:p@ss-51ab2e@proxy.example:3128"
    written = recorded(tmp_path, "facts", variables, "--out", str(tmp_path / "facts.json"))
    assert any("proxy.example:3128" in text for text in written.values()), "it was said that there is one"
    assert not [path for path, text in written.items() if "51ab2e" in text]


@pytest.mark.parametrize(
    "variables",
    [
        "gpusetup_source=https://user:pw-51ab2e@mirror.example/nvidia",
        "gpusetup_source=https://user:pw-51/ab2e-51ab2e@mirror.example/nvidia",
        "gpusetup_source_key=https://user:pw-51ab2e@mirror.example/key.asc",
        "gpusetup_proxy=user:pw-51ab2e@proxy.example:3128",
        "gpusetup_proxy=user:pw/51ab2e@proxy gpusetup_source=nowhere",
        "gpusetup_proxy=\"{{ 'http://user:pw-51ab2e@' + nothing_of_the_kind }}\"",
        """gpusetup_extra_sources='[{"name": "x", "urls": ["https://u:pw-51ab2e@h/"], "fingerprints": [], "key": "k"}]'""",
    ],
)
def test_an_address_that_is_refused_for_its_password_leaves_it_nowhere(tmp_path, capfd, variables):
    written = recorded(tmp_path, "plan", f"gpusetup_simulated_root={CAPTURED} {variables}", "--", "-vvvv")
    assert any('"event": "hosts"' in text for text in written.values())
    assert not [path for path, text in written.items() if "51ab2e" in text]
    assert "51ab2e" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://user:p@ss@proxy:1", "http://***@proxy:1"), ("https://user:pa/ss@proxy/x", "https://***@proxy/x"),
        ("https://mirror:8080/pool/x@1", ""), ("https://[::1]:80/pool/x@1", ""), ("/srv/mirror@home", ""),
        ("nvidia", ""),
    ],
)  # fmt: skip
def test_only_a_login_is_taken_out_of_an_address(address, told):
    assert without_login(address) == (told or address)
    assert holds_login(address) is bool(told)
