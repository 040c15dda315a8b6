"""Read the metrics from nvidia-smi, if the driver's library cannot be loaded."""

from typing import List, Optional

from gpu_read import smi

from .figures import FIGURES, Gpu, UnreadableError, fabric

_HEAD = ("index", "uuid", "name", "pci.bus_id")
_FABRIC_STATUS = "fabric.status"
_WORDS = {
    "yes": 1, "no": 0, "enabled": 1, "disabled": 0, "not started": 1, "in progress": 2, "completed": 3,
    "none": 0, "reset": 1, "gpu reset": 1, "reboot": 2, "node reboot": 2, "drain p2p": 3, "drain and reset": 4,
    "system reboot": 7,
}  # fmt: skip
"""nvidia-smi's words → NVML's numbers."""


def by_smi() -> List[Gpu]:
    """Return the GPUs as nvidia-smi reports them; fields that this version does not support are left out."""
    fields = (*_HEAD, *(figure.field for figure in FIGURES), _FABRIC_STATUS)
    try:
        rows = smi.Smi().rows("--query-gpu=", fields)
    except smi.SmiError as error:
        raise UnreadableError(str(error)) from None
    return [_gpu(row) for row in rows if row["index"].isdigit() and row["pci.bus_id"].count(":") == 2]


def _gpu(row: smi.Row) -> Gpu:
    values = {}
    for figure in FIGURES:
        value = _read(row.get(figure.field, ""))
        if value is not None:
            values[figure.metric] = value * figure.scale
    if values.get("nvidia_smi_fabric_state") and row.get(_FABRIC_STATUS):
        state = int(values["nvidia_smi_fabric_state"])
        values["nvidia_smi_fabric_state"] = fabric(state, row[_FABRIC_STATUS].lower() == "success")
    domain, bus, device = row["pci.bus_id"].lower().split(".")[0].split(":")
    return Gpu(int(row["index"]), row["uuid"], row["name"], f"{domain[-4:]}:{bus}:{device}", values)


def _read(text: str) -> Optional[float]:
    word = _WORDS.get(text.lower())
    return smi.number(text) if word is None else float(word)
