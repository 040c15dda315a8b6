"""Trials of engines that serve language models, with a tiny model of random weights that is made here.

The same model in single precision on the CPU judges each token: it must be the best one but for rounding. A wrong
model, a broken attention kernel or a wrong cache chooses tokens far below the best.
"""

import os
import tempfile
from typing import Any, Iterator, List, Sequence

from package_smoke import Trial
from smokes_of_torch import tiny_llama

TOKENS = 32
PROMPTS = 8
SHARE = 0.25
"""How far below the best score a token may be, in standard deviations of all scores: chance is off by six."""


class Model:
    """The tiny model on disk, and in memory to judge tokens."""

    def __init__(self) -> None:
        import torch
        import transformers

        self.torch = torch
        half = tiny_llama(transformers, torch).half()  # the judge uses exactly the engine's weights
        self.folder = tempfile.mkdtemp(prefix="model-")  # in the folder of this verification
        half.save_pretrained(self.folder)
        self.model = half.float()
        self.prompts: List[List[int]] = torch.randint(3, 512, (PROMPTS, 16)).tolist()

    def off(self, answers: Sequence[Sequence[int]]) -> float:
        """Return how far the worst token's score is below the best score of the CPU's model."""
        if len(answers) != PROMPTS:
            raise ValueError(f"{len(answers)} answers to {PROMPTS} prompts")
        worst = 0.0
        for prompt, answer in zip(self.prompts, answers):
            if len(answer) != TOKENS:
                raise ValueError(f"{len(answer)} tokens, {TOKENS} were asked for")
            with self.torch.no_grad():
                scores = self.model(self.torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
            chosen = scores.gather(1, self.torch.tensor(answer)[:, None])[:, 0]
            worst = max(worst, float(((scores.max(1).values - chosen) / scores.std(1)).max()))
        return worst

    def trial(self, generate: Any, where: Any, note: str = "") -> Trial:
        """Return the trial: 32 tokens for every prompt."""
        return Trial(
            "32 tokens",
            generate,
            None,
            SHARE,
            where=where,
            distance=lambda got, _wanted: self.off(got),
            note=note,
        )


def _offline() -> None:
    """Disable downloads and telemetry."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", DO_NOT_TRACK="1", TOKENIZERS_PARALLELISM="false")


def vllm(library: Any, _index: int) -> Iterator[Trial]:
    """Run the engine in this process, without captured graphs: it then starts in seconds, not a minute."""
    _offline()
    os.environ.update(VLLM_NO_USAGE_STATS="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
    model = Model()
    engine = library.LLM(
        model=model.folder,
        skip_tokenizer_init=True,
        dtype="float16",
        max_model_len=128,
        max_num_seqs=PROMPTS,
        gpu_memory_utilization=0.5,
        kv_cache_memory_bytes=256 << 20,
        enforce_eager=True,
        disable_log_stats=True,
    )
    asked = library.SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": prompt} for prompt in model.prompts]

    def generate() -> Any:
        return [list(answer.outputs[0].token_ids) for answer in engine.generate(prompts, asked, use_tqdm=False)]

    from vllm.platforms import current_platform

    yield model.trial(generate, lambda _got: str(current_platform.device_type))


def sglang(library: Any, _index: int) -> Iterator[Trial]:
    """Run the engine with its own processes, without captured graphs."""
    _offline()
    import torch

    model = Model()
    engine = library.Engine(
        model_path=model.folder,
        skip_tokenizer_init=True,
        dtype="float16",
        context_length=128,
        max_running_requests=PROMPTS,
        mem_fraction_static=0.5,
        max_total_tokens=8192,
        disable_cuda_graph=True,
        log_level="error",
    )
    asked = {"temperature": 0.0, "max_new_tokens": TOKENS, "ignore_eos": True}

    def generate() -> Any:
        return [
            list(answer["output_ids"]) for answer in engine.generate(input_ids=model.prompts, sampling_params=asked)
        ]

    free = torch.cuda.mem_get_info()  # the engine's scheduler process holds the model in this GPU's memory
    yield model.trial(generate, lambda _got: "cuda" if free[0] < free[1] - (256 << 20) else "cpu")
    engine.shutdown()
