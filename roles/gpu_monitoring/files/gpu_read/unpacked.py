"""Run code on a host straight from the connection: nothing is written there, nothing is left behind.

This file is sent as text and executed; `start` makes the other files, also sent as text, importable.
"""

import importlib.abc
import importlib.machinery
import sys
from typing import Any, Dict, Optional, Sequence


class _Sent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules among texts by name; a name without a text is a package."""

    def __init__(self, texts: Dict[str, str]) -> None:
        self.texts = texts

    def find_spec(
        self,
        fullname: str,
        path: Optional[Sequence[Any]] = None,  # noqa: ARG002 - Python's protocol
        target: Any = None,  # noqa: ARG002
    ) -> Optional[importlib.machinery.ModuleSpec]:
        inner = fullname in self.texts
        if not inner and not any(other.startswith(fullname + ".") for other in self.texts):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin="sent: " + fullname, is_package=not inner)

    def exec_module(self, module: Any) -> None:
        text = self.texts.get(module.__name__, "")
        exec(compile(text, "gpusetup:" + module.__name__, "exec"), module.__dict__)  # noqa: S102 - our own files


def start(texts: Dict[str, str], program: str, options: Dict[str, Any]) -> None:
    """Import a program from the texts and call its `main`."""
    sys.meta_path.insert(0, _Sent(texts))
    module = importlib.import_module(program)
    module.main(options)
