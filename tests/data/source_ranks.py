"""Whose word a source is: the vendor's own documents, a maintainer's words elsewhere, or somebody else's.

`python -m tests.data.source_ranks` lists the records of the matrix whose first source is not the vendor's.
"""

import json
from collections import Counter
from pathlib import Path
from urllib.parse import urlparse

DATA = Path(__file__).resolve().parents[2] / "gpusetup/matrix/data"
VENDORS = (
    "NVIDIA", "PyTorch", "TensorFlow", "JAX", "CuPy", "RAPIDS", "Python Package Index", "Debian", "Canonical", "Ubuntu",
    "Red Hat", "SUSE", "Fedora", "Amazon", "Microsoft", "Google", "gpusetup",
)  # fmt: skip
_HOSTS = (
    "nvidia.com", "nvidia.github.io", "pypi.org", "pytorch.org", "tensorflow.org", "docs.rapids.ai", "debian.org", "ubuntu.com",
    "redhat.com", "opensuse.org", "fedoraproject.org", "amazonaws.cn", "google.com",
)  # fmt: skip
_ORGANISATIONS = (
    "nvidia", "pytorch", "tensorflow", "jax-ml", "google", "cupy", "triton-lang", "rapidsai", "amzn", "awslabs", "aws",
    "azure", "microsoft", "googlecloudplatform", "suse", "fedora",
)  # fmt: skip


def is_first_class(url: str) -> bool:
    """Tell whether an address is the vendor's own: its site, its package index page, or its own repository."""
    place = urlparse(url)
    if place.netloc == "github.com":
        return place.path.strip("/").split("/")[0].lower() in _ORGANISATIONS
    return any(place.netloc == host or place.netloc.endswith("." + host) for host in _HOSTS)


def rank(publisher: str, url: str) -> int:
    """Return 1 for the vendor's own document, 2 for its words elsewhere or without an address, 3 for anybody else's."""
    if url and is_first_class(url):
        return 1
    return 2 if publisher.startswith(VENDORS) else 3


def main() -> None:
    for path in sorted(DATA.rglob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        sources = document.get("sources", {})
        below: Counter[tuple[int, str]] = Counter()
        for records in document.values():
            for record in records if isinstance(records, list) else ():
                named = record.get("sources") if isinstance(record, dict) else None
                if named and (source := sources.get(named[0])):
                    level = rank(source.get("publisher", ""), source.get("url", ""))
                    below[level, named[0]] += level > 1
        for (level, name), count in sorted(below.items(), reverse=True):
            if count:
                print(
                    f"{path.stem:<14} rank {level}  {count:>4} records  {name}: {sources[name].get('title', '')[:70]}"
                )


if __name__ == "__main__":
    main()
