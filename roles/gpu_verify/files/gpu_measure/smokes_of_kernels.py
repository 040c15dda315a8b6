"""Trials of packages with kernels for torch: attention, quantisation, transformer layers, scans."""

from typing import Any, Iterator, Tuple

from package_smoke import Trial
from smokes_of_torch import TF32, generator

HALF = 5e-3
"""Relative error of sums in half precision."""


def heads(torch: Any, index: int, length: int = 200, queries: int = 8, keys: int = 8) -> Tuple[Any, Any, Any, Any, Any]:
    """Return queries, keys, values [length, heads, 64] in half precision, and exact attention without and with mask."""
    numbers = generator(torch, index)
    q, k, v = (torch.randn(length, count, 64, generator=numbers).half() for count in (queries, keys, keys))
    every = [part.double().transpose(0, 1) for part in (q, *(x.repeat_interleave(queries // keys, 1) for x in (k, v)))]
    weights = every[0] @ every[1].transpose(1, 2) / 8.0
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    free = (weights.softmax(-1) @ every[2]).transpose(0, 1)
    masked = (weights.masked_fill(later, float("-inf")).softmax(-1) @ every[2]).transpose(0, 1)
    there = [part.to(f"cuda:{index}") for part in (q, k, v)]
    return there[0], there[1], there[2], free, masked


def xformers(_library: Any, index: int) -> Iterator[Trial]:
    """Run attention with the kernel that xFormers chooses for this GPU."""
    import torch
    import xformers.ops
    from xformers import _cpp_lib as inside

    why = getattr(inside, "_cpp_library_load_exception", None)
    if why is not None:  # xFormers only warned, and would later report that no kernel fits
        raise OSError(f"its compiled part was not loaded: {' '.join(str(why).split())}")
    q, k, v, free, _ = heads(torch, index)
    yield Trial(
        "attention",
        lambda: xformers.ops.memory_efficient_attention(q[None], k[None], v[None]),
        free[None],
        HALF,
    )


def flash_attn(library: Any, index: int) -> Iterator[Trial]:
    """Run attention with a causal mask."""
    import torch

    q, k, v, _, masked = heads(torch, index)
    yield Trial(
        "causal-attention",
        lambda: library.flash_attn_func(q[None], k[None], v[None], causal=True),
        masked[None],
        HALF,
    )


def flashinfer(library: Any, index: int) -> Iterator[Trial]:
    """Run a prefill with grouped heads; the kernel is compiled here unless a package of prebuilt ones is installed."""
    import torch

    q, k, v, _, masked = heads(torch, index, queries=8, keys=2)
    yield Trial(
        "causal-prefill",
        lambda: library.single_prefill_with_kv_cache(q, k, v, causal=True),
        masked,
        HALF,
    )


def bitsandbytes(library: Any, index: int) -> Iterator[Trial]:
    """Run layers with weights in eight and four bits."""
    import torch

    numbers = generator(torch, index)
    weight = torch.randn(256, 512, generator=numbers).half()
    data = torch.randn(64, 512, generator=numbers).half()
    exact, put = data.double() @ weight.double().T, data.to(f"cuda:{index}")
    eight = library.nn.Linear8bitLt(512, 256, bias=False, has_fp16_weights=False)
    four = library.nn.Linear4bit(512, 256, bias=False, compute_dtype=torch.float16, quant_type="nf4")
    # For normal numbers the error is about 1 % with eight bits, about 9 % with four (NF4, blocks of 64).
    for name, layer, limit in (("8-bit-product", eight, 3e-2), ("4-bit-product", four, 0.15)):
        layer.load_state_dict({"weight": weight})
        there = layer.to(f"cuda:{index}")

        def forward(there: Any = there) -> Any:
            with torch.no_grad():
                return there(put)

        yield Trial(name, forward, exact, limit)


def transformer_engine(_library: Any, index: int) -> Iterator[Trial]:
    """Run a linear layer (cuBLAS) and a normalisation (its own kernel)."""
    import torch
    import transformer_engine.pytorch as engine

    numbers = generator(torch, index)
    data = torch.randn(64, 256, generator=numbers)
    put = data.to(f"cuda:{index}")
    layer = engine.Linear(256, 128, bias=True, device=f"cuda:{index}")
    weight, bias = (part.detach().double().cpu() for part in (layer.weight, layer.bias))
    yield Trial("linear", lambda: layer(put), data.double() @ weight.T + bias, TF32)
    norm = engine.RMSNorm(256, eps=1e-5, device=f"cuda:{index}")
    exact = data.double() / (data.double().pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
    yield Trial("rms-norm", lambda: norm(put), exact, 1e-4)


def mamba_ssm(_library: Any, index: int) -> Iterator[Trial]:
    """Run the compiled selective scan against the plain recurrence."""
    import torch
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

    numbers = generator(torch, index)
    u, delta = (torch.randn(1, 16, 64, generator=numbers) for _ in range(2))
    a = -torch.rand(16, 8, generator=numbers)
    b, c = (torch.randn(1, 8, 64, generator=numbers) for _ in range(2))
    step = torch.nn.functional.softplus(delta.double())
    state, outputs = torch.zeros(1, 16, 8, dtype=torch.float64), []
    for at in range(64):
        state = torch.exp(step[:, :, at, None] * a.double()) * state
        state = state + step[:, :, at, None] * b.double()[:, None, :, at] * u.double()[:, :, at, None]
        outputs.append((state * c.double()[:, None, :, at]).sum(-1))
    there = [part.to(f"cuda:{index}") for part in (u, delta, a, b, c)]
    yield Trial(
        "selective-scan",
        lambda: selective_scan_fn(*there, delta_softplus=True),
        torch.stack(outputs, -1),
        1e-4,
    )


def causal_conv1d(library: Any, index: int) -> Iterator[Trial]:
    """Run a causal convolution."""
    import torch

    numbers = generator(torch, index)
    data, weight = torch.randn(2, 64, 128, generator=numbers), torch.randn(64, 4, generator=numbers)
    padded = torch.nn.functional.pad(data.double(), (3, 0))
    exact = sum(padded[:, :, tap : tap + 128] * weight.double()[None, :, tap, None] for tap in range(4))
    put, taps = data.to(f"cuda:{index}"), weight.to(f"cuda:{index}")
    yield Trial("causal-convolution", lambda: library.causal_conv1d_fn(put, taps), exact, 1e-4)
