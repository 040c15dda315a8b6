"""The speed of each GPU by itself: memory, matrix products, launches of kernels, and what a package computes."""

from typing import Any

from gpusetup.model.verdict import Curve, Curves, Finding, Item
from gpusetup.verify import answers
from gpusetup.verify.expected import matrix_rate, memory, setting
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import Row, check, from_items, table


def _judged(machine: Machine, kind: str) -> Finding:
    """Judge one kind of access (`copy` or `triad`) on every GPU."""
    items = answers.failed(machine, "memory")
    for key, answer in answers.sound(machine, "memory"):
        subject = answers.label(key)
        if kind == "triad" and answer.get("wrong"):
            items.append(Item(subject, "fail", f"{answer['wrong']} elements have wrong values"))
        elif "/" in key:
            items.append(Item(subject, "unsupported", "a MIG slice has a part of the memory", max(answer[kind])))
        else:
            bound = memory(f"memory.{kind}", machine.opened(key))
            items.append(answers.bounded(subject, answer[kind], bound, "GB/s", gentle=machine.beside_job(key)))
    slowest = min((max(answer[kind]) for _, answer in answers.sound(machine, "memory")), default=0.0)
    return from_items(
        items, f"{slowest:,.0f} GB/s or more on every GPU", unit="GB/s", nothing="not run: nothing was measured"
    )


@check("memory.copy", "Device memory copies at full speed", needs=("gpu", "python", "context"), took="memory/*")
def memory_copy(machine: Machine) -> Finding:
    """Device memory bandwidth of a copy by the copy engine: bytes read plus bytes written over time.

    Expected is the bandwidth of the memory bus (its width and clock, as the runtime reports them) times what a copy
    usually reaches. Two passes; the better one counts. A MIG slice has a part of the memory and is not judged.

    To do: look at ECC, row remapping and clocks; compare with the GPU beside it.
    """
    return _judged(machine, "copy")


@check("memory.triad", "Kernels use the memory at full speed", needs=("gpu", "python", "context"), took="memory/*")
def memory_triad(machine: Machine) -> Finding:
    """Device memory bandwidth of a kernel, the triad a = b + s · c: two reads and one write, every element checked.

    Expected as for memory.copy. Two passes; the better one counts.

    To do: as for memory.copy; a wrong element is hardware.
    """
    return _judged(machine, "triad")


def matrix_rates(machine: Machine, part: str) -> Finding:
    """Matrix rates, one check for each number format.

    Expected is multiprocessors x highest clock x operations per clock of the architecture x what cuBLAS usually reaches
    under the power limit. Eight whole columns of the result are compared with double precision. The load is
    short bursts with pauses; `--level stress` takes minutes. Two passes; the better one counts.

    To do: see gpu.power and gpu.throttle; compare with the GPU beside it.
    """
    items, rates = answers.failed(machine, "matrix"), []
    for key, answer in answers.sound(machine, "matrix"):
        subject, found = answers.label(key), answer["formats"].get(part, {"error": "not measured"})
        if "error" in found:
            refused = (
                "NOT_SUPPORTED" in found["error"]
                or "ARCH_MISMATCH" in found["error"]
                or "INVALID_VALUE" in found["error"]
            )
            items.append(Item(subject, "unsupported" if refused else "fail", str(found["error"])[:160]))
        elif not found["deviation"] <= found["limit"]:  # NaN is never below
            text = f"the product differs by {found['deviation']}, {found['limit']} would be rounding error"
            items.append(Item(subject, "fail", text))
        elif "/" in key:
            items.append(
                Item(subject, "unsupported", "a MIG slice has a part of the multiprocessors", max(found["tflops"]))
            )
        else:
            busy = machine.beside_job(key)
            items.append(
                answers.bounded(
                    subject, found["tflops"], matrix_rate(part, machine.opened(key)), "TFLOP/s", gentle=busy
                )
            )
            rates.append(max(found["tflops"]))
    text = f"{min(rates, default=0):.0f} TFLOP/s or more on every GPU"
    return from_items(items, text, unit="TFLOP/s", nothing="not run: nothing was measured")


table(
    matrix_rates,
    tuple(
        Row(
            f"matrix.{part}",
            f"{title} products at full speed",
            f"Matrix rate in {words} through cuBLAS (cublasGemmEx), 8192³ on random data, all GPUs at the same time.",
            part,
        )
        for part, title, words in (
            ("bf16", "bfloat16", "bfloat16"),
            ("fp16", "Half precision", "half precision"),
            ("fp32", "Single precision", "single precision"),
            ("tf32", "TF32", "TF32"),
        )
    ),
    needs=("gpu", "python", "context"),
    took="matrix/*",
)


@check("launch.latency", "Kernel launches, stream and graph", needs=("gpu", "python", "context"), took="launch/*")
def launch_latency(machine: Machine) -> Finding:
    """Kernel launch latency: a thousand launches of one kernel by stream against one CUDA graph, kernels of 1 to 50 µs.

    The rows show from which length of a kernel on a graph stops paying: short kernels are bound by the launch, long
    ones by themselves. There is no floor that holds for every machine (it is a matter of the processor, the driver and
    Python); very slow launches are a warning, since a profiler left on, a virtual machine's exits or a power-saving
    processor cause them. `--baseline` compares with this machine's own last good run.

    To do: processor governor `performance`; profiling tools off; see the table in the HTML report.
    """
    items = answers.failed(machine, "launch")
    figures: list[Curves] = []
    slow, slow_graph = setting("launch_stream_us_warn"), setting("launch_graph_us_warn")
    for key, answer in answers.sound(machine, "launch"):
        subject, rows = answers.label(key), answer["rows"]
        best, empty = min(row["stream_us"] for row in rows), rows[0]
        text = (
            f"{best:.1f} µs per launch at best; an empty kernel takes {empty['stream_us']:.1f} µs by stream, "
            f"{empty['graph_us']:.2f} µs in a graph ({empty['ratio']:.0f}x)"
        )
        if machine.beside_job(key):
            items.append(Item(subject, "warn", f"{text}, beside another job: not judged", best, blame="job"))
            continue
        items.append(Item(subject, "warn" if best > slow else "pass", text, best, limit=slow))
        if (graphed := empty["graph_us"]) > slow_graph:
            text = f"{graphed:.2f} µs for an empty kernel in a graph"
            items.append(Item(f"{subject}, graph", "warn", text, graphed, limit=slow_graph))
        if not figures:
            items += [_launch(subject, row) for row in rows]
            lines = (
                Curve(name="stream", points=tuple((row["graph_us"], row["stream_us"]) for row in rows)),
                Curve(name="CUDA graph", points=tuple((row["graph_us"], row["graph_us"]) for row in rows)),
            )
            figures.append(
                Curves(
                    title=f"Launch latency, {subject}",
                    x_label="kernel's own length in µs",
                    y_label="µs per kernel",
                    lines=lines,
                    x_log=True,
                    y_log=True,
                )
            )
    text = next((f"{item.subject}: {item.text}" for item in items if item.verdict == "pass"), "")
    return from_items(items, text, unit="µs", nothing="not run: nothing was measured", figures=tuple(figures))


def _launch(subject: str, row: dict[str, Any]) -> Item:
    text = f"{row['stream_us']:.2f} µs by stream, {row['graph_us']:.2f} µs in a graph, {row['ratio']:.2f}x"
    return Item(f"{subject}, kernel of {row['graph_us']:.1f} µs", "pass", text)
