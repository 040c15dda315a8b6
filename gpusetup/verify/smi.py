"""Parse nvidia-smi's XML and tables; never its banner, which changes between releases."""

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass

_UNKNOWN = re.compile(
    r"^\[?(N/A|Not Supported|Unknown Error|Requested functionality has been deprecated|No data)\]?$", re.IGNORECASE
)
_BROKEN = re.compile(r"^\[?(GPU requires reset|GPU is lost)\]?$", re.IGNORECASE)
_NUMBER = re.compile(r"^-?\d+(\.\d+)?")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class SmiGpu:
    """One GPU of `nvidia-smi -q -x`; a missing or unknown value is None."""

    index: int
    bus_id: str
    element: ET.Element

    def text(self, path: str) -> str | None:
        """Return the text at a path below the GPU."""
        found = self.element.find(path)
        value = (found.text or "").strip() if found is not None else ""
        return None if not value or _UNKNOWN.fullmatch(value) or _BROKEN.fullmatch(value) else value

    def number(self, path: str) -> float | None:
        """Return the number at the beginning of the text at a path."""
        match = _NUMBER.match(self.text(path) or "")
        return float(match.group()) if match else None

    def children(self, path: str) -> dict[str, str]:
        """Return the texts of the elements below a path, by tag."""
        found = self.element.find(path)
        return {child.tag: (child.text or "").strip() for child in found} if found is not None else {}

    def memory_errors(self, life: str) -> dict[str, int]:
        """Return the counters that can be read, by name; nvidia-smi groups those of GPUs before Turing."""
        path = f"ecc_errors/{life}"
        groups = {kind: self.text(f"{path}/{kind}/total") or "" for kind in ("single_bit", "double_bit")}
        return {name: int(text) for name, text in {**self.children(path), **groups}.items() if text.isdigit()}

    @property
    def broken(self) -> str:
        """nvidia-smi's words in place of the figures of a GPU that does not work; empty if it works."""
        texts = ((element.text or "").strip() for element in self.element.iter())
        return next((found[1] for text in texts if (found := _BROKEN.fullmatch(text))), "")

    @property
    def name(self) -> str:
        """The product's name."""
        return self.text("product_name") or "unknown GPU"

    @property
    def label(self) -> str:
        """The GPU's name in texts."""
        return f"GPU {self.index}"

    @property
    def device_id(self) -> str:
        """The PCI device id, four hexadecimal digits."""
        return (self.text("pci/pci_device_id") or "")[:4].lower()


def parse_gpus(text: str) -> tuple[SmiGpu, ...]:
    """Return the GPUs of `nvidia-smi -q -x`; empty for any other text, and for one that defines XML entities."""
    if "<!ENTITY" in text:
        return ()
    try:
        root = ET.fromstring(text)  # noqa: S314 - see above
    except ET.ParseError:
        return ()
    gpus = []
    for index, element in enumerate(root.findall("gpu")):
        gpus.append(SmiGpu(index, _short(element.get("id", "")), element))
    return tuple(gpus)


def _short(bus_id: str) -> str:
    """Return the kernel's form of a PCI address; nvidia-smi writes the domain with eight digits."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" if re.fullmatch(r"[0-9a-f]{8}", domain) else bus_id.lower()


@dataclass(frozen=True)
class NvLink:
    """One NVLink of one GPU; `rate` in GB/s each way, None if the link is down."""

    gpu: int
    link: int
    rate: float | None


def nvlink_rates(text: str) -> tuple[NvLink, ...]:
    """Parse `nvidia-smi nvlink -s`: every link of every GPU."""
    links, gpu = [], -1
    for line in text.splitlines():
        if header := re.match(r"GPU (\d+):", line):
            gpu = int(header.group(1))
        elif found := re.match(r"\s+Link (\d+): (.+)", line):
            rate = re.match(r"([\d.]+) GB/s", found.group(2))
            links.append(NvLink(gpu, int(found.group(1)), float(rate.group(1)) if rate else None))
    return tuple(links)


def nvlink_errors(text: str) -> dict[tuple[int, int], dict[str, int]]:
    """Parse `nvidia-smi nvlink -e`: error counters by GPU and link."""
    counters: dict[tuple[int, int], dict[str, int]] = {}
    gpu = -1
    for line in text.splitlines():
        if header := re.match(r"GPU (\d+):", line):
            gpu = int(header.group(1))
        elif found := re.match(r"\s+Link (\d+): (.+?): (\d+)\s*$", line):
            counters.setdefault((gpu, int(found.group(1))), {})[found.group(2)] = int(found.group(3))
    return counters


def parse_topology(text: str) -> tuple[tuple[str, ...], ...]:
    """Parse `nvidia-smi topo -m`: how GPU i reaches GPU j (`NV18`, `PIX`, `SYS`, …; `X` on the diagonal)."""
    rows = [_ESCAPES.sub("", line).split("\t") for line in text.splitlines()]
    if not rows:
        return ()
    columns = [position for position, cell in enumerate(rows[0]) if re.fullmatch(r"GPU\d+", cell.strip())]
    return tuple(
        tuple(row[position].strip() for position in columns)
        for row in rows[1:]
        if re.fullmatch(r"GPU\d+", row[0].strip()) and len(row) > max(columns, default=0)
    )
