"""Complete requirements with hashes: what is reached from the pins under the target's markers, and nothing else."""

from typing import Any

from gpusetup.bootstrap.hashes import complete
from gpusetup.bootstrap.wheels import target_environment
from gpusetup.errors import BadInputError
from tests.refusals import refused

TARGET = target_environment("3.10", "x86_64")


def item(name: str, version: str, *requires: str, sha256: str = "aa") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "version": version, "requires_dist": list(requires)},
        "download_info": {"url": "https://x", "archive_info": {"hashes": {"sha256": sha256} if sha256 else {}}},
    }


def test_only_what_is_reached_under_the_targets_markers():
    report = [
        item("Top_Level", "1.0", "dep>=1", "tomli; python_version < '3.11'", "win; sys_platform == 'win32'", "opt; extra == 'ctk'"),
        item("dep", "1.5", "top-level"),
        item("tomli", "2.0"),
        item("opt", "3.0", "deep; extra == 'ctk'"),
        item("left-over", "9"),
    ]  # fmt: skip
    lines, lacking = complete(["top-level==1.0"], report, TARGET)
    assert lacking == []
    assert [line.partition(" ")[0] for line in lines] == ["dep==1.5", "tomli==2.0", "Top_Level==1.0"]
    assert all(line.endswith(" --hash=sha256:aa") for line in lines)
    lines, _ = complete(["top-level[ctk]==1.0"], report, TARGET)
    assert "opt==3.0 --hash=sha256:aa" in lines
    newer, _ = complete(["top-level==1.0"], report, target_environment("3.12", "x86_64"))
    assert not [line for line in newer if line.startswith("tomli")]


def test_what_the_report_lacks_is_asked_for_again():
    report = [item("a", "1", "b[x]>=2", "c; python_version < '3.11'"), item("b", "2", "d; extra == 'x'")]
    lines, lacking = complete(["a==1"], report, TARGET)
    assert sorted(lacking) == ["c", "d"]
    assert len(lines) == 2
    with refused(BadInputError, "GS-772"):
        complete(["a==1"], [item("a", "1", sha256="")], TARGET)
