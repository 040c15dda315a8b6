"""What the lints ask of the shipped data and of rows that come from elsewhere, each against a good and a bad fixture."""

import re
from datetime import date

import pytest

from tests.data.lint import holds
from tools.refresh.lints import LINTS, records


def end_of_life(documents):
    """An end of life is a day, a month or `unknown`; a branch called ended did not end after the data's own date."""
    problems = []
    for _, path, record in records(documents):
        for field in ("eol", "date"):
            text = record.get(field, "")
            if text in ("", "unknown"):
                continue
            try:
                date.fromisoformat(text if text.count("-") == 2 else f"{text}-01")
            except ValueError:
                problems.append(f"{path}: {field} {text!r} is no day and no month")
    for branch in documents.get("driver", {}).get("branches", ()):
        eol = branch["eol"]
        if branch.get("ended") and eol not in ("", "unknown") and eol > documents["driver"]["date"]:
            problems.append(f"R{branch['branch']} is called ended, its end of life is {eol}")
        if not branch.get("ended") and eol != "unknown" and eol < documents["driver"]["date"][: len(eol)]:
            problems.append(f"R{branch['branch']} ended on {eol} and is not called ended")
    return problems


def gpu_figures(documents):
    """Figures name products that the matrix has, no product twice, and say something that can be true."""
    products = {gpu["name"]: gpu for gpu in documents["gpus"]["gpus"]}
    problems, seen = [], set()
    for record in documents["gpu_figures"]["gpus"]:
        for name in record["names"]:
            if name not in products:
                problems.append(f"{name} is no product of gpus.json")
                continue
            if name in seen:
                problems.append(f"{name} has figures twice")
            seen.add(name)
            capability = tuple(map(int, products[name]["cc"].split(".")))
            fp16, bf16, fp8 = (record.get(rate) for rate in ("fp16", "bf16", "fp8"))
            if fp8 and capability < (8, 9):
                problems.append(f"{name} has no FP8 units at capability {products[name]['cc']}")
            if bf16 and capability < (8, 0):
                problems.append(f"{name} has no BF16 units at capability {products[name]['cc']}")
            if fp16 and bf16 and fp16 != bf16:
                problems.append(f"{name}: FP16 and BF16 differ")
            if fp8 and fp16 and not 1.9 <= fp8 / fp16 <= 2.1:
                problems.append(f"{name}: FP8 is not twice FP16; is one of them with sparsity?")
    return problems


ON_A_BUS = ("datacenter", "rtx-pro", "geforce", "laptop", "embedded")


def gpu_products(documents):
    """Every GPU that sits on a PCI bus has an id, an architecture that the driver data knows, and no id it shares unsaid."""
    known = {(row["name"], cc) for row in documents["driver"]["architectures"] for cc in row["capabilities"]}
    problems = []
    owners: dict[str, list[dict]] = {}
    for gpu in documents["gpus"]["gpus"]:
        if gpu["kind"] in ON_A_BUS and not gpu.get("ids"):
            problems.append(f"{gpu['name']} has no PCI id")
        if (gpu["arch"], gpu["cc"]) not in known:
            problems.append(f"{gpu['name']}: driver data has no {gpu['arch']} of capability {gpu['cc']}")
        for pci_id in gpu.get("ids", ()):
            owners.setdefault(pci_id, []).append(gpu)
    for pci_id, gpus in owners.items():
        if len(gpus) == 1:
            continue
        names = ", ".join(gpu["name"] for gpu in gpus)
        if not all(gpu.get("subsystems") or "shared" in gpu.get("note", "") for gpu in gpus):
            problems.append(f"{pci_id} belongs to {names}: neither subsystem ids nor a note tell them apart")
        if len({(gpu["arch"], gpu["cc"]) for gpu in gpus}) > 1:
            problems.append(f"{pci_id} belongs to {names}, which differ in what the rules ask")
    return problems


LISTS = {"drivers": ("family", "module"), "fabric": ("format",)}


def package_names(documents):
    """For every driver branch there is one answer to what its packages are called, never two and never none."""
    repos = documents["repos"]
    branches = [row["branch"] for row in documents["driver"]["branches"]]
    open_from = 515
    problems = []
    for field, keys in LISTS.items():
        groups: dict[tuple[str, ...], list[dict]] = {}
        for record in repos[field]:
            groups.setdefault(tuple(record[key] for key in keys), []).append(record)
        for group, rows in groups.items():
            last = max((record.get("max_branch", 10**6) for record in rows), default=0)
            for branch in branches:
                if ("open" in group and branch < open_from) or branch > last:
                    continue
                found = sum(row.get("min_branch", 0) <= branch <= row.get("max_branch", branch) for row in rows)
                if found != 1:
                    problems.append(f"{field} {' '.join(group)}: {found} answers for R{branch}")
    families = {row["family"] for row in repos["directories"]}
    named = {row["family"] for row in repos["drivers"]}
    return problems + [f"no driver packages for {family}" for family in sorted(families - named)]


def pythons(documents):
    """A packaged Python is another one than the distribution's own, is named by its packages, and lies where its name says."""
    problems = []
    for system in documents["os"]["systems"]:
        rows = system.get("pythons", [])
        versions = [row["version"] for row in rows]
        problems += [
            f"{system['id']}: Python {one} twice" for one in dict.fromkeys(versions) if versions.count(one) > 1
        ]
        for row in rows:
            name = f"{system['id']}: Python {row['version']}"
            plain = row["version"].replace(".", "")
            if row["version"] == system["python"]:
                problems.append(f"{name} is its own")
            if row["path"] != f"/usr/bin/python{row['version']}":
                problems.append(f"{name} lies at {row['path']}")
            problems += [
                f"{name} is not what {package} is called after"
                for package in row["packages"]
                if not re.fullmatch(rf"python{plain}(-(pip|venv))?", package.replace(".", ""))
            ]
            if not row["packages"]:
                problems.append(f"{name} has no package")
            if row.get("prerelease") and not row.get("note"):
                problems.append(f"{name} is no final release, and nothing says which")
    return problems


def torch_code(documents):
    """A torch build says which GPU code it carries, or says that nobody knows: then it is never chosen."""
    problems = []
    for build in documents["torch"]["builds"]:
        name = f"torch {build['version']}+{build['variant']}"
        if build["code"] is None and not build.get("note"):
            problems.append(f"{name} carries unknown code and no note says so")
        for arch, code in (build["code"] or {}).items():
            if not code["targets"]:
                problems.append(f"{name} has an empty list for {arch}")
            if not code.get("sources"):
                problems.append(f"{name} does not say where its list for {arch} is from")
    return problems


OWN = (end_of_life, gpu_figures, gpu_products, package_names, pythons, torch_code)


@pytest.mark.parametrize(("name", "lint"), [*LINTS.items(), *((lint.__name__, lint) for lint in OWN)])
def test_lint(name, lint):
    holds(lint, name)
