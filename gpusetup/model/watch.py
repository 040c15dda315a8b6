"""The samples of a watched host, one line of JSON each; rates are in bytes per second, memory in bytes."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from gpusetup.model import Document

State = Literal["waiting", "connecting", "live", "stuck", "silent", "down", "refused"]
"""`stuck`: the host answers, its driver does not. `silent`: connected, but no line arrives."""


class Program(Struct, frozen=True, kw_only=True):
    """A program on a GPU; None: unknown, such as for a process that is not visible on the host."""

    pid: int
    kind: str = ""
    """C: compute, G: graphics."""
    memory: int | None = None
    utilization: int | None = None
    user: str | None = None
    command: str | None = None
    container: str | None = None


class GpuNow(Struct, frozen=True, kw_only=True):
    """A GPU at one moment; None: it does not report the value."""

    index: int
    uuid: str | None = None
    address: str | None = None
    name: str | None = None
    error: str = ""
    """Why it does not answer: for example it is lost, or needs a reset."""
    utilization: int | None = None
    memory_utilization: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    power: float | None = None
    power_limit: float | None = None
    temperature: int | None = None
    memory_temperature: int | None = None
    fan: int | None = None
    clock: int | None = None
    clock_limit: int | None = None
    memory_clock: int | None = None
    throttle: tuple[str, ...] | None = None
    pcie_tx: float | None = None
    pcie_rx: float | None = None
    nvlink_tx: float | None = None
    nvlink_rx: float | None = None
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
    time: float
    source: str | None = None
    driver: str | None = None
    gpus: tuple[GpuNow, ...] = ()
    error: str = ""
    stuck: float | None = None
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
