"""The samples of a watched host, one line of JSON each; rates are in bytes per second, memory in bytes."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from gpusetup.model import Document

State = Literal["waiting", "connecting", "live", "stuck", "silent", "down", "refused"]
"""`stuck`: the host answers, its driver does not. `silent`: connected, but no line arrives."""


Whole = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Real = Annotated[float, Meta(ge=-1e15, le=1e15)]
"""What a host sends is bounded: sums and shares of it stay numbers."""


class Program(Struct, frozen=True, kw_only=True):
    """A program on a GPU; None: unknown, such as for a process that is not visible on the host."""

    pid: Whole
    kind: str = ""
    """C: compute, G: graphics."""
    memory: Whole | None = None
    utilization: Whole | None = None
    user: str | None = None
    command: str | None = None
    container: str | None = None


class GpuNow(Struct, frozen=True, kw_only=True):
    """A GPU at one moment; None: it does not report the value."""

    index: Whole
    uuid: str | None = None
    address: str | None = None
    name: str | None = None
    error: str = ""
    """Why it does not answer: for example it is lost, or needs a reset."""
    utilization: Whole | None = None
    memory_utilization: Whole | None = None
    memory_used: Whole | None = None
    memory_total: Whole | None = None
    power: Real | None = None
    power_limit: Real | None = None
    temperature: Whole | None = None
    memory_temperature: Whole | None = None
    fan: Whole | None = None
    clock: Whole | None = None
    clock_limit: Whole | None = None
    memory_clock: Whole | None = None
    throttle: tuple[str, ...] | None = None
    pcie_tx: Real | None = None
    pcie_rx: Real | None = None
    nvlink_tx: Real | None = None
    nvlink_rx: Real | None = None
    mig: bool | None = None
    processes: tuple[Program, ...] = ()

    @property
    def memory_share(self) -> float | None:
        """The used share of its memory, in percent."""
        if self.memory_used is None or not self.memory_total:
            return None
        return 100.0 * self.memory_used / self.memory_total


class Look(Struct, frozen=True, kw_only=True):
    """One line: the GPUs, or how long the driver has not answered."""

    watch: Literal[1]
    time: Real
    source: str | None = None
    driver: str | None = None
    gpus: tuple[GpuNow, ...] = ()
    error: str = ""
    stuck: Real | None = None
    asked: str = field(default="", name="in")


class Stuck(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver that does not answer: for how long, and to which query."""

    seconds: float
    asked: str


class WatchedHost(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host at one moment; `age` is the seconds since its last sample, which has the figures."""

    state: State
    age: float | None
    reason: str | UnsetType = UNSET
    stuck: Stuck | UnsetType = UNSET
    error: str | UnsetType = UNSET
    time: str | UnsetType = UNSET
    source: str | UnsetType | None = UNSET
    driver: str | UnsetType | None = UNSET
    gpus: tuple[GpuNow, ...] | UnsetType = UNSET


class Watch(Document, frozen=True, kw_only=True, tag="gpusetup/watch/1"):
    """All watched hosts at one moment; `ok`: all of them answer."""

    ok: bool
    time: str
    hosts: dict[str, WatchedHost]
