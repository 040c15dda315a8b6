"""No name reaches a second line of a file, not even by the line's end that `$` passes over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import kernel_module, packages, services, sources
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = {"name": "cuda", "kind": "apt", "uris": ["http://x/"]}


@pytest.mark.parametrize(
    "use",
    [
        lambda: sources.check({**SOURCE, "name": "cuda\n"}),
        lambda: sources.check({**SOURCE, "uris": ["http://x/\n"]}),
        lambda: packages.merge([{"name": "cuda\n"}]),
        lambda: packages.merge([{"name": "cuda", "version": "1\n"}]),
        lambda: services.full_name("cuda\n"),
        lambda: kernel_module.configuration({"NVreg_A": "1\n"}, []),
        lambda: kernel_module.configuration({}, ["nvidia\n"]),
    ],
)
def test_the_end_of_a_line_is_refused(use: Callable[[], Any]) -> None:
    with pytest.raises(HostFailure):
        use()
