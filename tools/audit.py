"""Compare the SBOM (CycloneDX) of the wheel with what it installs, and look up known vulnerabilities of that.

`./dev test audit` needs the network: the package index, and PyPI's record of vulnerabilities.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SBOM = ROOT / "dist/gpusetup.cdx.json"
PYTHONS = ("python3.14", "python3.13", "python3.12")
"""Newest first: the newest supported ansible-core needs a new Python."""
CLOSURE = Path(__file__).with_name("audit_closure.txt").read_text(encoding="utf-8")


def differences(sbom: dict[str, Any], closure: dict[str, str]) -> list[str]:
    """Where an SBOM and the packages that the wheel really needs disagree."""
    listed = {item["name"].lower().replace("_", "-").replace(".", "-"): item["version"] for item in sbom["components"]}
    said = sbom.get("metadata", {}).get("component", {}).get("name")
    found = [] if said == "gpusetup" else [f"the SBOM is about {said}"]
    return found + [
        f"{name}: the SBOM says {listed.get(name)}, needed is {closure.get(name)}"
        for name in sorted(listed.keys() | closure.keys())
        if listed.get(name) != closure.get(name)
    ]


def judged(report: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Known vulnerabilities, and the packages that nobody could look up: those are no clean bill."""
    known, unseen = [], []
    for package in report["dependencies"]:
        if package["name"] == "gpusetup":
            continue
        if "skip_reason" in package:
            unseen.append(package["name"])
        for one in package.get("vulns", ()):
            fixed = ", ".join(one.get("fix_versions", ())) or "no version yet"
            known.append(f"{package['name']} {package['version']}: {one['id']}, fixed in {fixed}")
    return known, unseen


def audit() -> tuple[list[str], str]:
    """Return what is wrong, and why nothing can be said (empty when something can)."""
    with tempfile.TemporaryDirectory() as folder:
        runtime, tools = Path(folder) / "runtime", Path(folder) / "tools"
        newest = next((found for name in PYTHONS if (found := _works(name))), sys.executable)
        _run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(ROOT))
        (wheel,) = Path(folder).glob("gpusetup-*.whl")
        _run(sys.executable, "-m", "venv", str(tools))
        _run(str(tools / "bin/python"), "-m", "pip", "install", "-qq", "--upgrade", "pip>=25.1")
        _run(str(tools / "bin/python"), "-m", "pip", "install", "-qq", "--group", f"{ROOT}/pyproject.toml:audit")
        _run(newest, "-m", "venv", "--without-pip", str(runtime))
        _run(str(tools / "bin/python"), "-m", "pip", "--python", str(runtime), "install", "-qq", str(wheel))
        closure = json.loads(_run(str(runtime / "bin/python"), "-c", CLOSURE))
        print(f"audited with ansible-core {closure['ansible-core']} and {len(closure)} packages in all", flush=True)
        SBOM.parent.mkdir(exist_ok=True)
        _run(
            str(tools / "bin/cyclonedx-py"), "environment", str(runtime / "bin/python"),
            "--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "-o", str(SBOM),
        )  # fmt: skip
        wrong = differences(json.loads(SBOM.read_text()), closure)
        places = [str(path) for path in runtime.glob("lib/python*/site-packages")]
        asked = subprocess.run(
            [tools / "bin/pip-audit", "--path", *places, "--format", "json", "--progress-spinner", "off"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    try:
        known, unseen = judged(json.loads(asked.stdout))
    except ValueError:
        return wrong, "the vulnerability service does not answer: " + asked.stderr.strip()[-200:]
    return wrong + known, f"nobody could look up {len(unseen)} packages" if unseen else ""


def _works(name: str) -> str | None:
    """Where a Python is, if it starts at all (a pyenv shim may not) and can make environments."""
    path = shutil.which(name)
    if path is None or subprocess.run([path, "-c", "import venv"], capture_output=True, check=False).returncode:
        return None
    return path


def _run(*argv: str) -> str:
    print("$ " + " ".join(word.partition("\n")[0] for word in argv[:6] if word.strip()), flush=True)
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
