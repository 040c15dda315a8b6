"""The team of GPU workers: one process per GPU, in parallel unless that would disturb the measurement.

A worker that crashed or hung is replaced before the next measurement, so a broken check affects only itself.
"""

import os
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence

import child
import collect

if TYPE_CHECKING:
    from typing import TypedDict  # Python 3.6 has none

    class Slice(TypedDict):
        """A MIG device, which CUDA treats as a separate GPU."""

        profile: str
        uuid: str

    class GpuEntry(TypedDict, total=False):
        """A GPU in the observations."""

        index: int
        bus_id: str
        uuid: Optional[str]
        mig: bool
        memory: Optional[int]  # MiB
        slices: List[Slice]
        processes: List[Dict[str, Optional[str]]]
        joined: List[Dict[str, Optional[str]]]  # those after the measurement
        utilization: Optional[str]
        compute_mode: Optional[str]
        blind: bool  # nvidia-smi did not report it

    Answers = Dict[str, Dict[str, Any]]  # by member


HERE = os.path.dirname(os.path.abspath(__file__))
# Seconds within which a worker must answer each request; one that does not is killed.
DEADLINES = {
    "hello": 60,
    "open": 60,
    "smoke": 60,
    "memory": 30,
    "pcie": 60,
    "matrix": 60,
    "launch": 30,
    "peer": 180,
    "nccl_id": 30,
    "nccl": 120,
}
MIB = 1 << 20
SIZES = (1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB, 4096 * MIB)
LADDER = (64 * MIB, 1024 * MIB, 4096 * MIB)  # for groups smaller than all GPUs


class Member:
    """A worker and its GPU or MIG slice."""

    worker: child.Worker  # once it is started

    def __init__(self, gpu: "GpuEntry", part: "Optional[Slice]" = None) -> None:
        self.gpu, self.part = gpu, part
        self.start_failure: Optional[Dict[str, Any]] = None
        self.key = str(gpu["index"]) if part is None else "{}/{}".format(gpu["index"], part["uuid"])
        self.busy = bool(gpu["processes"])
        self.free_bytes: Optional[int] = None


class Team:
    """All workers of a machine."""

    def __init__(self, python: str, gpus: "List[GpuEntry]", scratch: str, request: Dict[str, Any]) -> None:
        self.python, self.scratch, self.request = python, scratch, request
        self.deadlines: Dict[str, float] = dict(DEADLINES, **request.get("deadlines", {}))
        chosen = request.get("gpus")
        self.members: List[Member] = []
        self._started: List[Member] = []
        for gpu in gpus:
            if chosen is not None and gpu["index"] not in chosen:
                continue
            if gpu["mig"]:
                self.members += [Member(gpu, part) for part in gpu["slices"]]
            else:
                self.members.append(Member(gpu))

    def _boot(self, member: Member) -> None:
        # NCCL reads these once per process; the machine's own settings for NVLS, algorithm or protocol are kept.
        extra = {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET",
            "NCCL_DEBUG_FILE": os.path.join(self.scratch, "nccl-{}.log".format(member.gpu["index"])),
        }
        if member.part:
            extra["CUDA_VISIBLE_DEVICES"] = member.part["uuid"]
        member.worker = child.Worker(
            [self.python, os.path.join(HERE, "worker.py")], child.environment(**extra), self.scratch
        )

    def start(self, steps: Sequence[str] = ("hello", "open", "smoke")) -> "Answers":
        """Start all workers, create contexts and run the smoke test, in parallel on all GPUs."""
        answers: Answers = {}
        for member in self.members:
            self._boot(member)
            self._started.append(member)
            answers[member.key] = {
                "gpu": member.gpu["index"],
                "slice": member.part["profile"] if member.part else None,
                "busy": member.busy,
            }
        for name in steps:
            for key, answer in self.together(name, self._each(name)).items():
                answers[key][name] = answer
                if name == "open":
                    self._member(key).free_bytes = answer.get("free_bytes")
                if "error" in answer and name != "smoke":
                    self._member(key).start_failure = answer
        return answers

    @staticmethod
    def _each(name: str) -> Callable[[Member], Dict[str, Any]]:
        if name == "open":
            return lambda member: {"bus_id": None if member.part else member.gpu["bus_id"]}
        return _gentle

    def _member(self, key: str) -> Member:
        return next(member for member in self.members if member.key == key)

    def ready(self) -> List[Member]:
        """Return the members that can measure; restart those whose worker has ended."""
        fit = []
        for member in self.members:
            if member.start_failure is not None:
                continue
            if member.worker.failure is not None:
                member.worker.close()
                self._boot(member)
                for name in ("hello", "open"):
                    request = dict(self._each(name)(member), do=name)
                    answer = member.worker.ask(request, self.deadlines[name])
                    if "error" in answer:
                        member.start_failure = answer
                        break
            if member.start_failure is None:
                fit.append(member)
        return fit

    def together(
        self,
        name: str,
        each: Optional[Callable[[Member], Dict[str, Any]]] = None,
        members: Optional[List[Member]] = None,
    ) -> "Answers":
        """Send the same request to all members at once; return the answers by member."""
        members = [member for member in (self.members if members is None else members) if member.start_failure is None]
        limit = self.deadlines[name]
        ends = time.monotonic() + limit
        for member in members:
            member.worker.send(dict(each(member) if each else {}, do=name))
        answers: Answers = {}
        for member in members:
            answers[member.key] = member.worker.receive(max(0.1, ends - time.monotonic()), name)
            if answers[member.key].get("error") == "timeout":
                answers[member.key]["deadline"] = limit
                answers[member.key]["message"] = f"no answer to {name} within {limit:g} s; killed"
        return answers

    def in_turn(self, name: str, each: Callable[[Member], Dict[str, Any]]) -> "Answers":
        """Send the same request to one member after the other; return the answers by member."""
        answers = {
            member.key: member.worker.ask(dict(each(member), do=name), self.deadlines[name]) for member in self.ready()
        }
        return dict(answers, **self.lost())

    def lost(self) -> "Answers":
        """Return why members cannot measure: their GPU could not be opened, or not again after a failure."""
        return {member.key: member.start_failure for member in self.members if member.start_failure is not None}

    def full(self, collection: collect.Collection) -> Dict[str, Any]:
        """Measure bandwidths, matrix rates, launch latencies, peer copies and collectives."""
        sections: Dict[str, Any] = {
            name: dict(self.together(name, _gentle, self.ready()), **self.lost())
            for name in ("memory", "matrix", "launch")
        }
        nodes = (collection.wait("machine") or {}).get("numa_nodes") or {"0": f"0-{(os.cpu_count() or 1) - 1}"}
        sections["pcie"] = self.in_turn("pcie", lambda member: dict(_gentle(member), nodes=nodes))
        whole = [member for member in self.ready() if member.part is None]
        if len(whole) > 1:
            sections["peer"] = self.peers(whole)
            whole = [member for member in self.ready() if member.part is None]
            sections["nccl"] = self.collectives(whole)
        return sections

    def peers(self, members: List[Member]) -> Dict[str, Any]:
        """Measure the peer-to-peer matrix in the first worker, which opens all devices for it."""
        answer = members[0].worker.ask(
            {
                "do": "peer",
                "bus_ids": [member.gpu["bus_id"] for member in members],
                "gentle": any(member.busy for member in members),
            },
            self.deadlines["peer"],
        )
        return dict(answer, gpus=[member.gpu["index"] for member in members])

    def collectives(self, members: List[Member]) -> Dict[str, Any]:
        """Measure groups of 2 up to all GPUs: all sizes for 2 and for all GPUs, three sizes in between."""
        results: List[Dict[str, Any]] = []
        if any(member.busy for member in members):
            return {"groups": [], "skipped": "another job uses a GPU"}
        for world in range(2, len(members) + 1):
            group = members[:world]
            sizes = self.sizes(SIZES if world in (2, len(members)) else LADDER, group)
            results.append(self.collective(group, sizes))
            if any("error" in answer for answer in results[-1]["ranks"].values()):
                break  # the next group would fail too: it contains these workers, which have ended
        return {"groups": results}

    def sizes(self, wanted: Sequence[int], members: List[Member]) -> List[int]:
        """Return the sizes of which two (send and receive buffer) fit into half of the smallest free memory."""
        free = [member.free_bytes for member in members if member.free_bytes]
        return [size for size in wanted if not free or size <= min(free) // 4]

    def collective(
        self,
        group: List[Member],
        sizes: List[int],
        first: int = 0,
        world: Optional[int] = None,
        identity: Optional[List[int]] = None,
    ) -> Dict[str, Any]:
        """Measure one communicator over these members, as the ranks from `first` on of `world`."""
        world = world or len(group)
        if identity is None:
            answer = group[0].worker.ask({"do": "nccl_id"}, self.deadlines["nccl_id"])
            if "error" in answer:
                return {"world": world, "ranks": {group[0].key: answer}}
            identity = answer["id"]
        ranks = {member.key: first + number for number, member in enumerate(group)}
        answers = self.together(
            "nccl", lambda member: {"id": identity, "rank": ranks[member.key], "world": world, "sizes": sizes}, group
        )
        return {"world": world, "gpus": [member.gpu["index"] for member in group], "ranks": answers}

    def stress(self) -> Dict[str, Any]:
        """Run the workers under load for the requested minutes, and sample the machine's state meanwhile."""
        duration = float(self.request.get("minutes", 5)) * 60
        members = [member for member in self.ready() if not member.busy]
        skipped = [member.key for member in self.members if member.busy]
        if not members:
            return {"skipped": "another job uses every GPU, or it could not be opened"}
        for member in members:
            member.worker.send({"do": "burn", "duration": duration})
        samples: List[Dict[str, Any]] = []
        ends = time.monotonic() + duration
        while time.monotonic() < ends:
            time.sleep(max(0.0, min(5.0, ends - time.monotonic())))
            samples.append({"at": round(time.monotonic() - ends + duration, 1), "rows": sample()})
        answers = {member.key: member.worker.receive(60, "burn") for member in members}
        after = collect.Collection(("smi", "kernel_log")).finish()
        return {
            "minutes": duration / 60,
            "seconds": duration,
            "workers": answers,
            "samples": samples,
            "lost": self.lost(),
            "after": after,
            "busy": skipped,
        }

    def close(self) -> None:
        for member in self._started:
            member.worker.close()


def _gentle(member: Member) -> Dict[str, Any]:
    """Return the request for a short measurement if another job uses the GPU."""
    return {"gentle": member.busy}


SAMPLE_FIELDS = ("index", "temperature.gpu", "temperature.memory", "power.draw", "clocks.sm", "utilization.gpu")


def sample() -> List[Dict[str, Any]]:
    """Return one reading of every GPU; the field of clock reasons has had two names."""
    for reasons in ("clocks_event_reasons.active", "clocks_throttle_reasons.active"):
        answer = child.run(
            ["nvidia-smi", "--query-gpu=" + ",".join((*SAMPLE_FIELDS, reasons)), "--format=csv,noheader,nounits"], 15
        )
        if answer["rc"] == 0:
            names = (*SAMPLE_FIELDS, "reasons")
            return [
                dict(zip(names, [part.strip() for part in line.split(",")])) for line in answer["stdout"].splitlines()
            ]
    return [{"error": answer["error"] or answer["stderr"][-200:]}]
