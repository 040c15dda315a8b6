"""Questions whose answers are put through every way of installing them."""

from typing import Any

QUESTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    ((), {}), (("torch",), {}), (("torch", "driver==580.*"), {"gpus": ("h100",)}),
    (("torch==2.6.*",), {"gpus": ("v100",), "os": "ubuntu22.04"}),
    (("torch==2.15.0+cu130",), {"gpus": ("rtx 5090",), "os": "ubuntu24.04"}),
    (("torch", "cupy"), {"gpus": ("gh200",), "os": "ubuntu24.04"}), (("torch", "tensorflow"), {"os": "ubuntu22.04"}),
    (("tensorflow",), {"gpus": ("a100",)}), (("jax",), {"gpus": ("h100",)}),
    (("jax", "driver==580.*"), {"gpus": ("h100",)}), (("cupy", "driver==535.*"), {"gpus": ("t4",)}),
    (("cupy", "driver==580.*"), {"gpus": ("h100",)}), (("cupy", "cuda==12.8.*"), {"os": "rocky9"}),
    (("cuda==12.8.*", "cudnn"), {"os": "ubuntu22.04"}), (("driver",), {"gpus": ("t4",)}),
    (("torch==1.13.*",), {"gpus": ("a100",), "driver": "470.256.02"}),
)  # fmt: skip
IDS = [" ".join((*words, *map(str, about.values()))) or "nothing asked" for words, about in QUESTIONS]
