"""Trials of packages based on torch: its companions, model loaders, quantisation, fused optimisers."""

import time
from typing import Any, Iterator

from package_smoke import Trial

TF32 = 5e-3
"""Relative error of single precision where TF32 may be on."""


def generator(torch: Any, index: int) -> Any:
    """Make this GPU the current one, and return a generator with a different seed in every run."""
    torch.cuda.set_device(index)
    return torch.Generator().manual_seed(int(time.time() * 1000) % 2**31)


def torchvision(vision: Any, index: int) -> Iterator[Trial]:
    """Run operators of torchvision's compiled library, whose build must match torch's."""
    import torch

    numbers = generator(torch, index)
    corners = torch.randint(0, 400, (300, 2), generator=numbers).float()
    boxes = torch.cat([corners, corners + torch.randint(8, 90, (300, 2), generator=numbers).float()], 1)
    scores = torch.randperm(300, generator=numbers).float()
    there, rank = boxes.to(f"cuda:{index}"), scores.to(f"cuda:{index}")
    yield Trial(
        "nms",
        lambda: vision.ops.nms(there, rank, 0.5),
        vision.ops.nms(boxes, scores, 0.5),
        0.0,
        distance=lambda got, wanted: 0.0 if got.cpu().tolist() == wanted.tolist() else 1.0,
    )
    picture = torch.randn(1, 8, 64, 64, generator=numbers)
    regions = torch.tensor([[0.0, 3.0, 5.0, 40.0, 47.0], [0.0, 10.0, 2.0, 60.0, 33.0]])
    put, at = picture.to(f"cuda:{index}"), regions.to(f"cuda:{index}")
    yield Trial(
        "roi_align",
        lambda: vision.ops.roi_align(put, at, (7, 7)),
        vision.ops.roi_align(picture, regions, (7, 7)),
        1e-5,
    )


def torchaudio(audio: Any, index: int) -> Iterator[Trial]:
    """Run a Fourier transform (cuFFT) and a convolution through torchaudio's functions."""
    import numpy
    import torch

    numbers = generator(torch, index)
    wave = torch.randn(1, 16000, generator=numbers)
    there, window = wave.to(f"cuda:{index}"), torch.hann_window(400, device=f"cuda:{index}")
    signal = wave[0].double().numpy()
    pieces = [signal[start : start + 400] for start in range(0, 16000 - 400 + 1, 160)]
    hann = 0.5 - 0.5 * numpy.cos(2 * numpy.pi * numpy.arange(400) / 400)
    power = numpy.abs(numpy.fft.rfft(numpy.stack(pieces) * hann)) ** 2
    yield Trial(
        "spectrogram",
        lambda: audio.functional.spectrogram(there, 0, window, 400, 160, 400, 2.0, False, center=False),
        power.T[None],
        1e-4,
    )
    yield Trial(
        "resample",
        lambda: audio.functional.resample(there, 16000, 8000),
        audio.functional.resample(wave, 16000, 8000),
        TF32,
    )


def tiny_llama(transformers: Any, torch: Any) -> Any:
    """Return a decoder of random weights that engines can load; nothing is downloaded."""
    torch.manual_seed(int(time.time() * 1000) % 2**31)
    shape = transformers.LlamaConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=512,
        max_position_embeddings=512,
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    return transformers.LlamaForCausalLM(shape).eval()


def transformers(library: Any, index: int) -> Iterator[Trial]:
    """Run a whole model's forward pass."""
    import copy

    import torch

    model = tiny_llama(library, torch)
    words = torch.randint(3, 512, (2, 64), generator=generator(torch, index))
    with torch.no_grad():
        wanted = model(words).logits
    there, put = copy.deepcopy(model).to(f"cuda:{index}"), words.to(f"cuda:{index}")

    def forward() -> Any:
        with torch.no_grad():
            return there(put).logits

    yield Trial("forward", forward, wanted, 2e-2)


def accelerate(library: Any, index: int) -> Iterator[Trial]:
    """Check where accelerate places a model, and what the model then computes."""
    import copy

    import torch

    numbers = generator(torch, index)
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
    data = torch.randn(32, 128, generator=numbers)
    with torch.no_grad():
        wanted = copy.deepcopy(model).double()(data.double())
    placed = library.dispatch_model(copy.deepcopy(model), {"0": index, "1": index, "2": index}, force_hooks=True)

    def forward() -> Any:
        with torch.no_grad():
            return placed(data)  # on the CPU: accelerate's hooks move it to the layers

    yield Trial("dispatch", forward, wanted, TF32, where=lambda _got: str(next(placed.parameters()).device))


def peft(library: Any, index: int) -> Iterator[Trial]:
    """Run an adapter with non-zero weights, as after training."""
    import torch

    numbers = generator(torch, index)
    base = torch.nn.Sequential(torch.nn.Linear(128, 96, bias=False))
    adapted = library.get_peft_model(
        base, library.LoraConfig(r=8, lora_alpha=16, target_modules=["0"], lora_dropout=0.0)
    )
    down, up = torch.randn(8, 128, generator=numbers), torch.randn(96, 8, generator=numbers)
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            weight.data.copy_(down if "lora_A" in name else up)
        else:
            plain = weight.data.clone().double()
    data = torch.randn(32, 128, generator=numbers)
    exact = data.double() @ (plain + 16 / 8 * up.double() @ down.double()).T
    there, put = adapted.to(f"cuda:{index}"), data.to(f"cuda:{index}")
    yield Trial("lora", lambda: there(put), exact, TF32)


def torchao(_library: Any, index: int) -> Iterator[Trial]:
    """Run a layer with weights in eight bits."""
    import torch
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    numbers = generator(torch, index)
    layer = torch.nn.Linear(512, 256, bias=False, dtype=torch.bfloat16)
    layer.weight.data.copy_(torch.randn(256, 512, generator=numbers))
    data = torch.randn(64, 512, generator=numbers).bfloat16()
    exact = data.double() @ layer.weight.detach().double().T
    there, put = layer.to(f"cuda:{index}"), data.to(f"cuda:{index}")
    quantize_(there, Int8WeightOnlyConfig())

    def forward() -> Any:
        with torch.no_grad():
            return there(put)

    yield Trial("int8-weights", forward, exact, 3e-2)


def fbgemm_gpu(_library: Any, index: int) -> Iterator[Trial]:
    """Run a sparse operator that FBGEMM registers with torch."""
    import torch

    numbers = generator(torch, index)
    lengths = torch.randint(0, 20, (4097,), generator=numbers)
    there = lengths.to(f"cuda:{index}")
    wanted = lengths.cumsum(0)
    yield Trial("cumulative-sum", lambda: torch.ops.fbgemm.asynchronous_inclusive_cumsum(there), wanted, 0.0)


def torch_tensorrt(library: Any, index: int) -> Iterator[Trial]:
    """Run a layer compiled to a TensorRT engine."""
    import torch

    numbers = generator(torch, index)
    model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.ReLU())
    data = torch.randn(16, 128, generator=numbers)
    with torch.no_grad():
        wanted = model.double()(data.double())
    there, put = model.float().eval().to(f"cuda:{index}"), data.to(f"cuda:{index}")
    compiled = library.compile(there, ir="dynamo", inputs=[put], min_block_size=1)
    yield Trial("compiled-layer", lambda: compiled(put), wanted, TF32)


def deepspeed(_library: Any, index: int) -> Iterator[Trial]:
    """Build the fused Adam as training does at its first step (nvcc, a C++ compiler, ninja), and run it."""
    import torch
    from deepspeed.ops.adam import FusedAdam

    numbers = generator(torch, index)
    start, slope = torch.randn(5000, generator=numbers), torch.randn(5000, generator=numbers)
    own = torch.nn.Parameter(start.double())
    own.grad = slope.double()
    plain = torch.optim.AdamW([own], lr=1e-2, weight_decay=0.01)
    there = torch.nn.Parameter(start.to(f"cuda:{index}"))
    there.grad = slope.to(f"cuda:{index}")
    fused = FusedAdam([there], lr=1e-2, weight_decay=0.01)
    fused.step()
    for _ in range(2):
        plain.step()

    def second() -> Any:
        fused.step()
        return there.detach()

    yield Trial("fused-adam", second, own.detach(), 1e-5)
