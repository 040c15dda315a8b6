"""How much the files hold. A count that falls is data lost; one that grows is written down here with the data."""

from tests.data.lint import shipped

LEAST_GPUS = 494
COUNTED = (
    ("cuda", "releases"), ("cuda", "toolchains"), ("cuda", "wheel_pins"), ("driver", "branches"), ("driver", "versions"),
    ("torch", "releases"), ("torch", "builds"), ("tensorflow", "releases"), ("cupy", "releases"), ("vgpu", "branches"),
    ("wheels", "closures"),
)  # fmt: skip
EXACT = {
    "cuda releases": 70, "cuda toolchains": 27, "cuda wheel_pins": 41, "driver branches": 28, "driver versions": 272,
    "torch releases": 40, "torch builds": 105, "NCCL versions": 65, "cuDNN wheels": 59, "cuDNN support rows": 79,
    "tensorflow releases": 52, "TensorFlow and-cuda pins": 15, "JAX releases": 49, "cupy releases": 211,
    "forward compatibility rows": 12, "vgpu branches": 10, "wheels closures": 37, "PCI ids": 641,
}  # fmt: skip


def counts(documents):
    def rows(name, part="releases"):
        return documents[name][part]

    posts = {one["version"] for row in rows("nccl") for one in row.get("builds", ()) if ".post" in one["version"]}
    return {
        **{f"{name} {part}": len(rows(name, part)) for name, part in COUNTED},
        "cuDNN wheels": sum(bool(row.get("wheels")) for row in rows("cudnn")),
        "cuDNN support rows": sum(row["confidence"] != "inferred" for row in rows("cudnn", "support")),
        "TensorFlow and-cuda pins": sum(bool(row.get("pins")) for row in rows("tensorflow")),
        "NCCL versions": len({row["version"] for row in rows("nccl")} | posts),
        "JAX releases": len({row["version"] for row in rows("jax")}),
        "forward compatibility rows": sum("fwd_compat" in row["sources"] for row in rows("forward_compat", "packages")),
        "PCI ids": len({pci_id for gpu in rows("gpus", "gpus") for pci_id in gpu.get("ids", ())}),
    }


def lint(documents):
    found, gpus = counts(documents), len(documents["gpus"]["gpus"])
    problems = [f"{found[name]} {name}, not {wanted}" for name, wanted in EXACT.items() if found[name] != wanted]
    return problems + [f"{gpus} gpus, fewer than {LEAST_GPUS}"] * (gpus < LEAST_GPUS)


def test_shipped():
    assert lint(shipped()) == []


def test_a_lost_record_is_seen():
    documents = shipped()
    documents["cuda"]["releases"].pop()
    documents["gpus"]["gpus"].pop()  # GB10, with one id
    assert lint(documents) == ["69 cuda releases, not 70", "640 PCI ids, not 641", "493 gpus, fewer than 494"]
