"""nvidia-smi, asked by what changes GPUs."""

from typing import Any, Callable, Dict, List

from . import process

SECONDS = 120


def asks(env: Dict[str, str]) -> Callable[[List[str]], Dict[str, Any]]:
    """Return what asks nvidia-smi."""

    def run(arguments: List[str]) -> Dict[str, Any]:
        code, out, error = process.output(["nvidia-smi", *arguments], env, SECONDS)
        return {"rc": code, "out": out, "err": error}

    return run
