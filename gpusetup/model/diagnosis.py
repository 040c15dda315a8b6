"""What the doctor knows and says: causes with their patterns, findings in a text, the diagnosis of a machine.

A cause's `kind` says how much weight it has when several are found together: a `root` explains the others, a `symptom`
only says that something is wrong, a `notice` is harmless and mistaken for the trouble.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


class Device(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device file: whether the one who looked may open it, None when that is not known."""

    open: bool | None = None
    mode: str | None = None


class BuildLog(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log of a module's last build."""

    path: str
    version: str
    text: str


class LibraryFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that could be meant by a library's name, and the file that it leads to."""

    path: str
    leads_to: str


class Environment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Python environment and the frameworks in it, by name."""

    path: str
    packages: dict[str, str]


class Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the driver says of a GPU after an error; None: it does not tell."""

    action: str | None = None
    """Its recovery action, in nvidia-smi's word."""
    pending: bool | None = None
    """A memory row is replaced at the next reset."""
    failed: bool | None = None
    """A memory row could not be replaced."""


class Reset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When gpusetup reset a GPU, in seconds since the boot and since 1970."""

    uptime: float
    time: float


class Symptoms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was seen on one machine."""

    live: bool
    """The machine itself answered; a capture knows only what was recorded."""
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
    """By CDI file the versions of libcuda that it names."""
    mig_instances: bool | None
    licence: tuple[str, ...]
    recovery: dict[str, Wanted] = {}
    """By PCI address."""
    resets: dict[str, Reset] = {}
    """By PCI address the last one of this boot."""


Need = Literal[
    "nothing", "program", "update", "look", "reset", "drain", "drain-reset", "reboot", "hands", "support",
]  # fmt: skip
"""From the least to the gravest."""
Step = Literal["drain", "reset", "reboot"]
"""What gpusetup can do about it itself."""


class Recovery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is needed, who says so, and of which GPUs (PCI addresses; none: of the host as a whole)."""

    need: Need
    text: str
    why: tuple[str, ...]
    gpus: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    """What `gpusetup doctor --apply` does, in this order; none where a person must act."""
    commands: tuple[str, ...] = ()


class Recovered(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of one host's recovery."""

    state: Literal[
        "nothing-to-do", "by-hand", "planned", "refused", "unreachable", "failed", "pending-reboot", "done", "not-gone",
    ]  # fmt: skip
    """`planned`: only shown; `by-hand`: none of it is ours to do; `not-gone`: done, and the finding is still there."""
    recovery: Recovery | None = None
    did: tuple[str, ...] = ()
    reference: str = ""
    message: str = ""
    hint: str = ""


CauseId = Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
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
    """One way out: what it does and the commands to copy, in order."""

    text: str
    commands: tuple[str, ...] = ()


class Pattern(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a message is recognised: one of the `find` texts, and around it the expression when one is given.

    The expression is tried on the lines around the find, first as they are, then joined to one line without the
    prefixes that logs add; its named groups are decoded for the reader.
    """

    find: Annotated[tuple[Annotated[str, Meta(min_length=5)], ...], Meta(min_length=1)]
    regex: str = ""
    own_line: bool = False
    """The expression looks at the find's own line only; what it names there is looked up in a table."""


class Cause(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the catalogue."""

    id: CauseId
    title: str
    area: Area
    kind: Kind = "root"
    patterns: tuple[Pattern, ...] = ()
    """Empty for a cause that only a look at the machine finds, or that the CUDA error table recognises."""
    explanation: str
    checks: tuple[str, ...] = ()
    """Commands whose output confirms it."""
    fixes: tuple[Fix, ...]
    sources: tuple[str, ...]
    hides: tuple[CauseId, ...] = ()
    """Causes that this one explains when both are found."""
    xids: tuple[int, ...] = ()
    """Numbers of Xids that mean this cause."""


class CauseFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of the catalogue."""

    schema: Literal["gpusetup/causes/1"]
    date: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    causes: tuple[Cause, ...]


class Outside(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of trouble that is none of the GPU installation's, and how a line shows it."""

    id: CauseId
    title: str
    advice: str
    always: bool
    """A line shows it even with a word of NVIDIA's stack in it."""
    regex: str


class OutsideFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kinds, in the order in which a line is asked."""

    sources: tuple[str, ...]
    kinds: tuple[Outside, ...]


class Companion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package that is compiled against PyTorch, and the extension modules that its build makes."""

    package: str
    modules: tuple[str, ...]


class CompanionFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """companions.json."""

    schema: Literal["gpusetup/companions/1"]
    sources: tuple[str, ...]
    companions: tuple[Companion, ...]


class CudaError(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error number of CUDA with its names in both APIs, its text, and the cause it stands for when it has one."""

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
    """An answer of a library: its name (and the one that Python gives it), number, text, and the cause behind it.

    An empty cause stands for an answer that is no error.
    """

    name: str
    also: str = ""
    number: int | None = None
    text: str = ""
    cause: str = ""


class StatusFamily(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answers of one library."""

    family: str
    source: str
    statuses: tuple[Status, ...]


class StatusFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """status_names.json."""

    schema: Literal["gpusetup/status-names/1"]
    date: str
    families: tuple[StatusFamily, ...]


class Sxid(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"class_": "class"}):
    """An NVSwitch error with the class that the vendor gives it.

    `stalls`: listed as not fatal to the fabric, but the GPU's traffic stops; `notable`: only announces others.
    """

    class_: Literal["non-fatal", "stalls", "notable", "fatal", "always-fatal"]
    text: str
    action: str


class SxidFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """sxid.json."""

    schema: Literal["gpusetup/sxid/1"]
    date: str
    sources: tuple[str, ...]
    sxids: dict[int, Sxid]


class Reference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one of gpusetup's own error references (GS-324) stands for."""

    title: str
    meaning: str = ""
    fix: str


class Finding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cause found in a text or on a machine, ready to be told."""

    cause: str
    title: str
    kind: Kind
    explanation: str
    evidence: tuple[str, ...] = ()
    """The lines or facts that show it."""
    line: int | None = None
    count: int = 1
    details: tuple[str, ...] = ()
    """What the numbers in it mean, and what follows for this driver or GPU."""
    checks: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    recovery: Recovery | None = None
    """What it needs, where the driver, NVIDIA's catalogue or our table says so."""
    page: str = ""
    """Its page in the built documentation; `gpusetup doctor --explain CAUSE` prints the same."""


class Ruled(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question that was answered: what was looked at and what it showed."""

    step: str
    text: str
    answer: Literal["fine", "cause", "unknown", "notice"]


class Diagnosis(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the doctor says about one machine: healthy, or the first cause, and everything it ruled out on the way."""

    healthy: bool
    cause: Finding | None
    ruled: tuple[Ruled, ...]
    notices: tuple[Finding, ...] = ()
    recovery: Recovery | None = None
    """The gravest need of what was found and of what the driver asks for; None: nothing needs anything."""
    root_would_add: tuple[str, ...] = ()
    simulated: bool = False
    seconds: float = 0.0
