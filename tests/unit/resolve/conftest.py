"""Short ways to ask the resolver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpusetup.errors import NoStackError
from gpusetup.model.request import Request
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.stack import Resolution


@pytest.fixture(scope="session")
def ask(shipped: Matrix) -> Callable[..., Resolution]:
    """Resolve: requirements as people type them, the rest as fields of a request."""

    def asked(*texts: str, **fields: Any) -> Resolution:
        gpus = tuple(fields.pop("gpu", ()))
        count = fields.pop("gpu_count", len(gpus))
        return resolve(
            Request(requirements=parse_requirements(list(texts)), gpus=gpus, gpu_count=count, **fields), shipped
        )

    return asked


@pytest.fixture(scope="session")
def refused(ask: Callable[..., Resolution]) -> Callable[..., dict[str, Any]]:
    """Ask for what cannot be; return the conflict's rules and the whole document."""

    def asked(*texts: str, **fields: Any) -> dict[str, Any]:
        with pytest.raises(NoStackError) as caught:
            ask(*texts, **fields)
        document = caught.value.to_document()
        return {**document, "rules": {item["rule"] for item in document["conflict"]}}

    return asked
