"""Figures name products that the matrix has, no product twice, and say something that can be true."""

from tests.data.lint import holds

RATES = ("fp16", "bf16", "fp8")


def lint(documents):
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
            fp16, bf16, fp8 = (record.get(rate) for rate in RATES)
            if fp8 and capability < (8, 9):
                problems.append(f"{name} has no FP8 units at capability {products[name]['cc']}")
            if bf16 and capability < (8, 0):
                problems.append(f"{name} has no BF16 units at capability {products[name]['cc']}")
            if fp16 and bf16 and fp16 != bf16:
                problems.append(f"{name}: FP16 and BF16 differ")
            if fp8 and fp16 and not 1.9 <= fp8 / fp16 <= 2.1:
                problems.append(f"{name}: FP8 is not twice FP16; is one of them with sparsity?")
    return problems


def test_data():
    holds(lint, "gpu_figures")
