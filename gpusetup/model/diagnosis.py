"""The doctor's data: causes with their patterns, findings in a text, the diagnosis of a machine.

A cause's `kind` is its weight when several are found together: a `root` explains the others, a `symptom` only shows
that something is wrong, a `notice` is harmless but often mistaken for the fault.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gpusetup.model import whole


class Device(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device file, and whether the user may open it; None: unknown."""

    open: bool | None = None
    mode: str | None = None


class BuildLog(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log of a module's last build."""

    path: str
    version: str
    text: str


class LibraryFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that a library name may resolve to, and the target of its links."""

    path: str
    leads_to: str


class Environment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Python environment and the frameworks in it, by name."""

    path: str
    packages: dict[str, str]


class Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the driver reports about a GPU after an error; None: it does not report it."""

    action: str | None = None
    """The recovery action in nvidia-smi's words."""
    pending: bool | None = None
    """A memory row will be replaced at the next reset."""
    failed: bool | None = None
    """A memory row could not be replaced."""


class Reset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When gpusetup reset a GPU, in seconds since boot and since 1970."""

    uptime: float
    time: float


class Symptoms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Observations on one machine."""

    live: bool
    """Observed on the machine itself, not read from a capture."""
    root: bool | None
    environment: dict[str, str]
    kernel_log: str | None
    kernel_log_refused: bool
    devices: dict[str, Device] | None
    """None on a simulated host."""
    builds: tuple[BuildLog, ...]
    loader_cache: bool
    libraries: dict[str, tuple[LibraryFile, ...]]
    environments: tuple[Environment, ...]
    cdi: dict[str, tuple[str, ...]]
    """CDI file → the versions of libcuda that it names."""
    mig_instances: bool | None
    licence: tuple[str, ...]
    recovery: dict[str, Wanted] = {}
    """By PCI address."""
    resets: dict[str, Reset] = {}
    """PCI address → the last reset in this boot."""


Need = Literal[
    "nothing", "program", "update", "look", "reset", "drain", "drain-reset", "reboot", "hands", "support",
]  # fmt: skip
"""From least to most severe."""
Step = Literal["drain", "reset", "reboot"]
"""What gpusetup can do itself."""


class Recovery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is needed, who says so, and for which GPUs (PCI addresses; empty: the whole host)."""

    need: Need
    text: str
    why: tuple[str, ...]
    gpus: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    """What `gpusetup doctor --apply` does, in this order; empty if a person must act."""
    commands: tuple[str, ...] = ()


class Recovered(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of one host's recovery."""

    state: Literal[
        "nothing-to-do", "by-hand", "planned", "refused", "unreachable", "failed", "pending-reboot", "done", "not-gone",
    ]  # fmt: skip
    """`planned`: only shown; `by-hand`: gpusetup can do none of it; `not-gone`: done, but the finding remains."""
    recovery: Recovery | None = None
    did: tuple[str, ...] = ()
    reference: str = ""
    message: str = ""
    hint: str = ""


CauseId = Annotated[str, whole(r"[a-z0-9]+(-[a-z0-9]+)*")]
Kind = Literal["root", "symptom", "notice"]
Area = Literal[
    "driver",
    "kernel-module",
    "packages",
    "cuda",
    "libraries",
    "pytorch",
    "tensorflow",
    "jax",
    "cupy",
    "nccl",
    "fabric",
    "hardware",
    "containers",
    "vgpu",
    "mig",
]


class Fix(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fix: what it does, and its commands in order."""

    text: str
    commands: tuple[str, ...] = ()


class Pattern(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a message is recognised: by one of the `find` texts, and by the expression around it if there is one.

    The expression is tried on the lines around the find, first as they are, then joined to one line without log
    prefixes; its named groups are decoded for the reader.
    """

    find: Annotated[tuple[Annotated[str, Meta(min_length=5)], ...], Meta(min_length=1)]
    regex: str = ""
    own_line: bool = False
    """The expression is tried on the find's own line only."""


class Cause(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the catalogue."""

    id: CauseId
    title: str
    area: Area
    kind: Kind = "root"
    patterns: tuple[Pattern, ...] = ()
    """Empty for a cause that only the diagnosis of a machine finds, or that the CUDA error table recognises."""
    explanation: str
    checks: tuple[str, ...] = ()
    """Commands whose output confirms it."""
    fixes: tuple[Fix, ...]
    sources: tuple[str, ...]
    hides: tuple[CauseId, ...] = ()
    """Causes that are consequences of this one when both are found."""
    xids: tuple[int, ...] = ()
    """Xid numbers that mean this cause."""


class CauseFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of the catalogue."""

    schema: Literal["gpusetup/causes/1"]
    date: Annotated[str, whole(r"\d{4}-\d{2}-\d{2}")]
    causes: tuple[Cause, ...]


class Words(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An expression for words in messages, and what it is for."""

    why: str
    regex: str
    any_case: bool = False


class Outside(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of trouble outside the GPU installation, and how to recognise its lines."""

    id: CauseId
    title: str
    advice: str
    always: bool
    """It applies to a line even near words of NVIDIA's stack."""
    frame: str = ""
    """It is the output of a program, and the text has this line; `regex` finds others with words of trouble."""
    regex: str


class OutsideFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kinds, in the order to try them."""

    sources: tuple[str, ...]
    kinds: tuple[Outside, ...]


class NextStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command whose output has more about a text in which no cause is known, and what it gets."""

    program: str = ""
    text: str
    command: str


class Program(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program of the stack, how to recognise its lines, and where it says more."""

    name: str
    regex: str
    names: dict[str, str] = {}
    """A word of the commands → the expression whose group is what to put there."""
    steps: tuple[NextStep, ...]
    sources: tuple[str, ...]


class Companion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package that is compiled against PyTorch, and its extension modules."""

    package: str
    modules: tuple[str, ...]


class CompanionFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """companions.json."""

    schema: Literal["gpusetup/companions/1"]
    sources: tuple[str, ...]
    companions: tuple[Companion, ...]


class CudaError(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A CUDA error number with its names in both APIs, its text, and its cause if there is one."""

    number: int
    runtime: str = ""
    driver: str = ""
    text: str = ""
    old: int | None = None
    """The runtime API's number before CUDA 10.1."""
    cause: str = ""


class CudaErrorFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """cuda_errors.json."""

    schema: Literal["gpusetup/cuda-errors/1"]
    date: str
    sources: tuple[str, ...]
    errors: tuple[CudaError, ...]


class Status(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A library's status code: its name (and its name in Python), number, text and cause.

    An empty cause means that the status is not an error.
    """

    name: str
    also: str = ""
    number: int | None = None
    text: str = ""
    cause: str = ""


class StatusFamily(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The status codes of one library."""

    family: str
    source: str
    statuses: tuple[Status, ...]


class StatusFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """status_names.json."""

    schema: Literal["gpusetup/status-names/1"]
    date: str
    families: tuple[StatusFamily, ...]


class Sxid(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"class_": "class"}):
    """An NVSwitch error with the vendor's class.

    `stalls`: not fatal to the fabric, but the GPU's traffic stops; `notable`: only announces other errors.
    """

    class_: Literal["non-fatal", "stalls", "notable", "fatal", "always-fatal"]
    text: str
    action: str


class SxidFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """sxid.json."""

    schema: Literal["gpusetup/sxid/1"]
    date: str
    sources: tuple[str, ...]
    classes: dict[str, str]
    sxids: dict[int, Sxid]


class Reference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The meaning of one of gpusetup's own error references (GS-324)."""

    title: str
    meaning: str = ""
    fix: str


class Finding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cause found in a text or on a machine, ready to be printed."""

    cause: str
    title: str
    kind: Kind
    explanation: str
    evidence: tuple[str, ...] = ()
    """The lines or facts that show it."""
    line: int | None = None
    count: int = 1
    details: tuple[str, ...] = ()
    """What its numbers mean, and what follows for this driver or GPU."""
    checks: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    recovery: Recovery | None = None
    """The recovery that the driver, NVIDIA's catalogue or gpusetup's table names, if any."""
    page: str = ""
    """Its page in the built documentation; `gpusetup doctor --explain CAUSE` prints the same."""


class Ruled(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One check of a diagnosis and its result."""

    step: str
    text: str
    answer: Literal["fine", "cause", "unknown", "notice"]


class Diagnosis(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The diagnosis of one machine: healthy, or the first cause found, and everything ruled out before."""

    healthy: bool
    cause: Finding | None
    ruled: tuple[Ruled, ...]
    notices: tuple[Finding, ...] = ()
    recovery: Recovery | None = None
    """The most severe recovery that the findings or the driver require; None: nothing is needed."""
    root_would_add: tuple[str, ...] = ()
    simulated: bool = False
    seconds: float = 0.0
