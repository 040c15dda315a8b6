"""Every GPU that sits on a PCI bus has an id, an architecture that the driver data knows, and no id it shares unsaid."""

from tests.data.lint import holds

ON_A_BUS = ("datacenter", "rtx-pro", "geforce", "laptop", "embedded")


def lint(documents):
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


def test_data():
    holds(lint, "gpu_products")
