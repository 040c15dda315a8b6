"""Short ways to ask the resolver."""

from typing import Any

import pytest

from gpusetup.errors import NoStackError
from gpusetup.model.request import Request
from gpusetup.model.stack import Resolution
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements


@pytest.fixture(scope="session")
def ask(shipped):
    """Resolve: requirements as people type them, the rest as fields of a request."""

    def asked(*texts: str, **fields: Any) -> Resolution:
        gpus = tuple(fields.pop("gpu", ()))
        count = fields.pop("gpu_count", len(gpus))
        requirements = parse_requirements(list(texts))
        return resolve(Request(requirements=requirements, gpus=gpus, gpu_count=count, **fields), shipped)

    return asked


@pytest.fixture(scope="session")
def refused(ask):
    """Ask for what cannot be; return the conflict's rules and the whole document."""

    def asked(*texts: str, **fields: Any) -> dict[str, Any]:
        with pytest.raises(NoStackError) as caught:
            ask(*texts, **fields)
        document = caught.value.to_document()
        return {**document, "rules": {item["rule"] for item in document["conflict"]}}

    return asked
