"""Kernel launch latency: a thousand launches of one kernel by stream against one CUDA graph, for kernels of 1 to 50 µs.

The rows show from which length of a kernel on a graph stops paying: short kernels are bound by the launch, long
ones by themselves. There is no floor that holds for every machine (it is a matter of the processor, the driver and
Python); very slow launches are a warning, since a profiler left on, a virtual machine's exits or a power-saving
processor cause them. `--baseline` compares with this machine's own last good run.

To do: processor governor `performance`; profiling tools off; see the table in the HTML report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.model.verdict import Curve, Curves, Finding, Item
from gpusetup.verify import bandwidth
from gpusetup.verify.expected import setting
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.model.verdict import Blame
    from gpusetup.verify.machine import Machine


@check(
    "launch.latency",
    "Kernel launches, stream and graph",
    needs=("gpu", "python", "context"),
    seconds=bandwidth.seconds("launch"),
)
def judge(machine: Machine) -> Finding:
    """Judge the best launch by stream and the empty kernel in a graph, on every GPU."""
    items = bandwidth.failed(machine, "launch")
    figures: list[Curves] = []
    slow, slow_graph = setting("launch_stream_us_warn"), setting("launch_graph_us_warn")
    for key, answer in bandwidth.sound(machine, "launch"):
        subject, rows = bandwidth.label(key), answer["rows"]
        best, empty = min(row["stream_us"] for row in rows), rows[0]
        text = (
            f"{best:.1f} µs per launch at best; an empty kernel takes {empty['stream_us']:.1f} µs by stream, "
            f"{empty['graph_us']:.2f} µs in a graph ({empty['ratio']:.0f}x)"
        )
        grave = best > slow or empty["graph_us"] > slow_graph
        blame: Blame = "job" if machine.workers.get(key, {}).get("busy") else ""
        items.append(Item(subject, "warn" if grave else "pass", text, best, limit=slow, blame=blame))
        if not figures:
            items += [_row(subject, row) for row in rows]
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
    first = next((item.text for item in items if item.verdict == "pass"), "")
    text = f"{items[0].subject}: {first}" if items else ""
    return from_items(items, text, unit="µs", nothing="not run: nothing was measured", figures=tuple(figures))


def _row(subject: str, row: dict[str, Any]) -> Item:
    text = f"{row['stream_us']:.2f} µs by stream, {row['graph_us']:.2f} µs in a graph, {row['ratio']:.2f}x"
    return Item(f"{subject}, kernel of {row['graph_us']:.1f} µs", "pass", text)
