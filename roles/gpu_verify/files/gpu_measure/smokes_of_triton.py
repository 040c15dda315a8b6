"""Trial of Triton: a freshly compiled kernel with a product on the tensor cores."""

from typing import Any, Iterator

import triton as compiler
import triton.language as tl
from package_smoke import Trial
from smokes_of_torch import TF32, generator

SIZE = 64


@compiler.jit  # type: ignore[untyped-decorator]
def _gated(left, right, bias, out, size: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton reads it, not Python
    row = tl.arange(0, size)[:, None]
    column = tl.arange(0, size)[None, :]
    a = tl.load(left + row * size + column)
    b = tl.load(right + row * size + column)
    product = tl.dot(a, b) + tl.load(bias + column)
    tl.store(out + row * size + column, product * tl.sigmoid(product))


def triton(_library: Any, index: int) -> Iterator[Trial]:
    """Run product, bias and gate in one kernel."""
    import torch

    numbers = generator(torch, index)
    a, b = (torch.randn(SIZE, SIZE, generator=numbers) for _ in range(2))
    bias = torch.randn(SIZE, generator=numbers)
    exact = a.double() @ b.double() + bias.double()
    there = [part.to(f"cuda:{index}") for part in (a, b, bias)]
    out = torch.empty(SIZE, SIZE, device=f"cuda:{index}")

    def run() -> Any:
        _gated[(1,)](*there, out, size=SIZE)
        return out

    yield Trial("kernel", run, exact * torch.sigmoid(exact), TF32)
