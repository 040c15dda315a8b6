"""The host probe that targets run, loaded from the same files for this machine."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from gpusetup.content import content_path

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["load"]

_NAME = "gpusetup_host_probe"


def load(part: str = "") -> ModuleType | Any:
    """Return the probe package, or one of its modules."""
    if _NAME not in sys.modules:
        folder = content_path() / "plugins" / "module_utils" / "gpu_probe"
        spec = importlib.util.spec_from_file_location(
            _NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"no host probe in {folder}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[_NAME] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[_NAME]
            raise
    return importlib.import_module(f"{_NAME}.{part}") if part else sys.modules[_NAME]
