"""How much the files hold. A count that falls is data lost; one that grows is written down here with the data."""

from tests.data.lint import shipped

AT_LEAST = {"gpus": 494}
EXACT = {
    "CUDA releases": 70, "toolchains": 27, "cuda-toolkit wheels": 41, "driver branches": 28, "driver versions": 272,
    "torch releases": 40, "torch builds": 105, "NCCL versions": 65, "cuDNN wheels": 59, "cuDNN support rows": 79,
    "TensorFlow releases": 52, "TensorFlow and-cuda pins": 15, "JAX releases": 49, "CuPy wheels": 211,
    "forward compatibility rows": 12, "vGPU branches": 10, "wheel closures": 33, "PCI ids": 641,
}  # fmt: skip


def counts(documents):
    d = documents
    return {
        "CUDA releases": len(d["cuda"]["releases"]),
        "toolchains": len(d["cuda"]["toolchains"]),
        "cuda-toolkit wheels": len(d["cuda"]["wheel_pins"]),
        "driver branches": len(d["driver"]["branches"]),
        "driver versions": len(d["driver"]["versions"]),
        "torch releases": len(d["torch"]["releases"]),
        "torch builds": len(d["torch"]["builds"]),
        "NCCL versions": len(
            {
                v
                for row in d["nccl"]["releases"]
                for v in (row["version"], *(b["version"] for b in row.get("builds", ()) if ".post" in b["version"]))
            }
        ),
        "cuDNN wheels": sum(1 for row in d["cudnn"]["releases"] if row.get("wheels")),
        "cuDNN support rows": sum(1 for row in d["cudnn"]["support"] if row["confidence"] != "inferred"),
        "TensorFlow releases": len(d["tensorflow"]["releases"]),
        "TensorFlow and-cuda pins": sum(1 for row in d["tensorflow"]["releases"] if row.get("pins")),
        "JAX releases": len({row["version"] for row in d["jax"]["releases"]}),
        "CuPy wheels": len(d["cupy"]["releases"]),
        "forward compatibility rows": sum(
            1 for row in d["forward_compat"]["packages"] if "fwd_compat" in row["sources"]
        ),
        "vGPU branches": len(d["vgpu"]["branches"]),
        "wheel closures": len(d["wheels"]["closures"]),
        "PCI ids": len({pci_id for gpu in d["gpus"]["gpus"] for pci_id in gpu.get("ids", ())}),
    }


def lint(documents):
    found = counts(documents)
    problems = [
        f"{found[name]} {name}, not {wanted}"
        for name, wanted in EXACT.items()
        if name in found and found[name] != wanted
    ]
    return problems + [
        f"{len(documents[name][name])} {name}, fewer than {least}"
        for name, least in AT_LEAST.items()
        if len(documents[name][name]) < least
    ]


def test_shipped():
    assert lint(shipped()) == []


def test_a_lost_record_is_seen():
    documents = shipped()
    documents["cuda"]["releases"].pop()
    documents["gpus"]["gpus"].pop()  # GB10, with one id
    assert lint(documents) == ["69 CUDA releases, not 70", "640 PCI ids, not 641", "493 gpus, fewer than 494"]
