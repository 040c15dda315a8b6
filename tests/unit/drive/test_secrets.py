"""A proxy's password stands in the inventory and nowhere in what a run writes down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_record_of_a_run_knows_the_proxy_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))
    inventory = tmp_path / "inventory.ini"
    inventory.write_text(
        "here ansible_connection=local gpusetup_become=false gpusetup_candidates=false "
        "gpusetup_proxy=http://user:p@ss-51ab2e@proxy.example:3128\n"
    )
    main(["facts", str(inventory), "--format", "json", "--out", str(tmp_path / "facts.json")])
    written = {
        path: path.read_text(errors="replace")
        for path in [*(tmp_path / "state").rglob("*"), tmp_path / "facts.json"]
        if path.is_file()
    }
    assert any("proxy.example:3128" in text for text in written.values()), "it was said that there is one"
    assert not [path for path, text in written.items() if "51ab2e" in text]
