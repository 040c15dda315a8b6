"""SVG pictures: curves, grids, and the connections between a host's GPUs, adapters and processors."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from msgspec import Struct

from gpusetup.drive.causes import counted
from gpusetup.model.verdict import Curves, Grid

_CELL = 58
_LEFT = 64
_TOP = 34
_PALETTE = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#db2777", "#0891b2", "#65a30d", "#b91c1c")


def element(name: str, body: str = "", /, **attributes: object) -> str:
    """Return an SVG element; attribute values are escaped, `body` is markup."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items()
    )
    return f"<{name}{written}>{body}</{name}>"


def text_at(x: float, y: float, text: str, kind: str = "axis", anchor: str = "middle", **more: object) -> str:
    """Return a text element at a position."""
    return element("text", escape(text), x=f"{x:.1f}", y=f"{y:.1f}", class_=kind, text_anchor=anchor, **more)


def line_of(x1: float, y1: float, x2: float, y2: float, **more: object) -> str:
    """Return a line between two points."""
    return element("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", **more)


def grid_svg(grid: Grid) -> str:
    """Return a heat map: green at the expected value, red at the limit or below."""
    width, height = _LEFT + _CELL * len(grid.columns) + 8, _TOP + _CELL * len(grid.rows) + 8
    parts = [text_at(_LEFT + _CELL * (number + 0.5), _TOP - 10, name) for number, name in enumerate(grid.columns)]
    for row, name in enumerate(grid.rows):
        y = _TOP + _CELL * row
        parts.append(text_at(_LEFT - 8, y + _CELL / 2 + 4, name, anchor="end"))
        parts += [_cell(grid, row, column, _LEFT + _CELL * column, y) for column in range(len(grid.columns))]
    box = f"0 0 {width} {height}"
    return element("svg", "".join(parts), viewBox=box, width=width, height=height, role="img", aria_label=grid.title)


def _cell(grid: Grid, row: int, column: int, x: float, y: float) -> str:
    value = grid.values[row][column]
    note = grid.notes[row][column] if row < len(grid.notes) and column < len(grid.notes[row]) else ""
    colour = _colour(grid, value)
    box = element("rect", x=x + 1, y=y + 1, width=_CELL - 2, height=_CELL - 2, rx=4, fill=colour)
    if value is None:
        return box
    shown = ("yes" if value else "no") if not grid.unit else f"{value:.0f}"
    title = f"{grid.rows[row]} to {grid.columns[column]}: {value:g} {grid.unit} {note}".strip()
    middle = x + _CELL / 2
    parts = [element("title", escape(title)), box, text_at(middle, y + _CELL / 2 + 1, shown, "value")]
    if note:
        parts.append(text_at(middle, y + _CELL / 2 + 16, note, "note"))
    return element("g", "".join(parts))


def _colour(grid: Grid, value: float | None) -> str:
    if value is None:
        return "#e5e7eb"
    if not grid.unit:
        return "#86efac" if value else "#fca5a5"
    low = grid.limit if grid.limit is not None else 0.0
    high = grid.expected if grid.expected is not None else max((cell or 0.0) for line in grid.values for cell in line)
    share = 1.0 if high <= low else max(0.0, min(1.0, (value - low) / (high - low)))
    return f"hsl({share * 140:.0f} 62% 76%)"


def curves_svg(curves: Curves) -> str:
    """Return a line chart with its legend."""
    width, height, left, right, top, bottom = 640, 330, 62, 16, 14, 48
    points = [point for line in curves.lines for point in line.points]
    if not points:
        return ""
    xs, ys = [x for x, _ in points], [y for _, y in points] + ([] if curves.y_log else [0.0])
    across = _scale(xs, left, width - right, log=curves.x_log)
    up = _scale(ys, height - bottom, top, log=curves.y_log)
    parts = []
    for value in _ticks(ys, log=curves.y_log):
        parts.append(line_of(left, up(value), width - right, up(value), class_="grid"))
        parts.append(text_at(left - 8, up(value) + 4, f"{value:g}", anchor="end"))
    parts += [text_at(across(value), height - bottom + 18, _x_text(curves, value)) for value in _x_ticks(curves, xs)]
    parts.append(text_at((left + width - right) / 2, height - 8, curves.x_label))
    middle = (height - bottom) / 2
    parts.append(text_at(14, middle, curves.y_label, transform=f"rotate(-90 14 {middle:g})"))
    for number, line in enumerate(curves.lines):
        style = {"stroke": "#6b7280" if line.expected else _PALETTE[number % len(_PALETTE)]}
        if line.expected:
            style["stroke_dasharray"] = "5 4"
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line.points)
        parts.append(element("polyline", points=path, fill="none", stroke_width=2, **style))
        for x, y in () if line.expected else line.points:
            title = element("title", escape(f"{line.name}: {y:g} at {_x_text(curves, x)}"))
            parts.append(element("circle", title, cx=f"{across(x):.1f}", cy=f"{up(y):.1f}", r=3, fill=style["stroke"]))
        x, y = left + number % 4 * 140, height + 14 + number // 4 * 22
        parts.append(line_of(x, y - 4, x + 22, y - 4, stroke_width=3, **style))
        parts.append(text_at(x + 28, y, line.name, anchor="start"))
    box = f"0 0 {width} {height + 22 * ((len(curves.lines) + 3) // 4)}"
    return element("svg", "".join(parts), viewBox=box, width=500, role="img", aria_label=curves.title)


def _x_text(curves: Curves, value: float) -> str:
    return _bytes(value) if curves.x_bytes else f"{value:g}"


def _scale(values: list[float], start: float, end: float, *, log: bool) -> Callable[[float], float]:
    low, high = min(values), max(values)
    if log:
        floor = min((value for value in values if value > 0), default=1.0)
        low, high = math.log(floor), math.log(max(high, floor))
    else:
        high *= 1.05 if high > 0 else 1.0
    span = (high - low) or 1.0

    def place(value: float) -> float:
        position = math.log(max(value, math.exp(low))) if log else value
        return start + (end - start) * (position - low) / span

    return place


def _ticks(values: list[float], *, log: bool) -> list[float]:
    low, high = min(values), max(values)
    if log:
        first = math.floor(math.log10(max(low, 1e-3)))
        marks = [
            factor * 10.0**power
            for power in range(first, math.ceil(math.log10(max(high, 1e-3))) + 1)
            for factor in (1, 2, 5)
        ]
        return [mark for mark in marks if low <= mark <= high]
    step = 10 ** math.floor(math.log10((high - low) or 1.0))
    step = next(
        (step * factor for factor in (0.1, 0.2, 0.5, 1, 2, 5) if (high - low) / (step * factor) <= 7), step * 10
    )
    return [round(number * step, 6) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _x_ticks(curves: Curves, values: list[float]) -> list[float]:
    if curves.x_bytes:
        return sorted({value for line in curves.lines[:1] for value, _ in line.points} or set(values))
    return _ticks(values, log=curves.x_log)


def _bytes(value: float) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= scale * 0.99:
            return f"{value / scale:.3g} {unit}"
    return f"{value:g} B"


_COLUMN, _CARD, _GAP, _EDGE = 104, 96, 14, 16
_PROCESSOR, _BRIDGE, _ADAPTER, _TALL = 36, 46, 64, 62
"""The y of processors, the heights of a row of bridges and of adapters, and of a GPU's card."""
_MOST_LINKS = 18
"""The most NVLinks that one GPU has (Hopper and Blackwell)."""
_LINK = re.compile(r"NV(\d+)")
_WAYS = {
    "PIX": "one PCI Express bridge",
    "PXB": "several PCI Express bridges",
    "PHB": "the processor's PCI Express root",
    "NODE": "PCI Express roots of one NUMA node",
    "SYS": "the link between NUMA nodes",
}
"""nvidia-smi's names of connections between GPUs without NVLink."""


class Device(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU or a network adapter: the text on its card, and its location."""

    name: str
    kind: str
    lines: tuple[str, ...]
    place: str = ""
    """Its PCI address."""
    node: int | None = None
    root: str = ""
    """The last bridge before the processor; empty if unknown."""
    narrow: bool = False
    """Whether it uses fewer PCI Express lanes than it could."""


class Topology(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host's devices and their connections."""

    gpus: tuple[Device, ...]
    adapters: tuple[Device, ...] = ()
    links: tuple[int | None, ...] = ()
    """The number of active NVLinks of each GPU, None if unknown."""
    ways: tuple[tuple[str, ...], ...] = ()
    """How GPU i reaches GPU j, as in `nvidia-smi topo -m`; empty if unknown."""
    switched: bool = False
    """Whether GPUs connect through NVSwitches instead of directly."""


def topology_of(facts: Mapping[str, Any], ways: Sequence[Sequence[str]] = ()) -> Topology | None:
    """Return the topology from the probe's facts, or None without a GPU."""
    gpus = facts.get("gpus")
    if not isinstance(gpus, list | tuple) or not gpus:
        return None
    hcas = (facts.get("rdma") or {}).get("hcas") or ()
    told = ways if len(ways) == len(gpus) else ()
    reached = [[int(found[1]) for way in row if (found := _LINK.fullmatch(way))] for row in told] or [[] for _ in gpus]
    own = [(gpu.get("nvlinks") or {}).get("up") for gpu in gpus]
    fabric = bool(facts.get("nvswitch")) or any((gpu.get("fabric") or {}).get("state") == "Completed" for gpu in gpus)
    shared = any(sum(there) > (up or _MOST_LINKS) for there, up in zip(reached, own, strict=True))
    switched = len(gpus) > 1 and (fabric or shared)
    links = [max(there, default=0) if switched else sum(there) for there in reached] if told else [None] * len(gpus)
    return Topology(
        gpus=tuple(_gpu(number, gpu) for number, gpu in enumerate(gpus)),
        adapters=tuple(_adapter(hca) for hca in hcas),
        links=tuple(count if up is None else int(up) for count, up in zip(links, own, strict=True)),
        ways=tuple(map(tuple, told)),
        switched=switched,
    )


def _gpu(number: int, gpu: Mapping[str, Any]) -> Device:
    named = gpu.get("reported_name") or gpu.get("name") or gpu.get("pci_id") or ""
    return _device(f"GPU {number}", "gpu", gpu, [str(named).removeprefix("NVIDIA ")])


def _adapter(hca: Mapping[str, Any]) -> Device:
    ports = [f"{port['rate']:g} Gb/s" for port in hca.get("ports") or () if port.get("rate")]
    states = {str(port["state"]) for port in hca.get("ports") or () if port.get("state")}
    return _device(str(hca["name"]), "hca", hca, [*ports[:1], ", ".join(sorted(states))])


def _device(name: str, kind: str, found: Mapping[str, Any], lines: list[str]) -> Device:
    link, node = found.get("link") or {}, found.get("numa_node")
    width, best, speed = link.get("width"), link.get("max_width"), str(link.get("speed") or "").partition(" GT/s")[0]
    if width and kind == "gpu":
        lines.append(f"x{width} {speed.removesuffix('.0')} GT/s" if speed else f"x{width}")
    above = (found.get("way") or {}).get("above") or ()
    return Device(
        name=name,
        kind=kind,
        lines=tuple(line for line in lines if line),
        place=str(found.get("address") or ""),
        node=node if isinstance(node, int) and node >= 0 else None,
        root=str(above[-1]) if above else "",
        narrow=bool(width and best and width < best),
    )


def sentences(found: Topology) -> list[str]:
    """Return the picture's content in words, for its caption and for screen readers."""
    told = [f"{len(found.gpus)} GPU{'s' if len(found.gpus) > 1 else ''}"]
    counts = Counter(found.links[number] for number in range(len(found.gpus)))
    links = next(iter(counts))
    if len(found.gpus) > 1 and len(counts) == 1 and links:
        told.append(f"each with {links} NVLinks" + (" into NVSwitches" if found.switched else ""))
    elif len(counts) > 1:
        each = [f"GPU {number} {'unknown' if up is None else up}" for number, up in enumerate(found.links)]
        told.append(f"NVLinks: {', '.join(each)}")
    elif found.switched and links is None:
        told.append("meeting in NVSwitches")
    others = Counter(way for i, row in enumerate(found.ways) for way in row[i + 1 :] if not _LINK.fullmatch(way))
    told += [f"{counted(number, 'pair')} over {_WAYS.get(way, way)}" for way, number in others.items()]
    nodes = {device.node for device in found.gpus} - {None}
    told.append(f"on {len(nodes)} NUMA node{'s' if len(nodes) > 1 else ''}" if nodes else "NUMA node unknown")
    if found.adapters:
        told.append("adapters " + ", ".join(device.name for device in found.adapters))
    told += [f"{device.name} has fewer PCI Express lanes than it can" for device in found.gpus if device.narrow]
    return told


def picture(found: Topology | None) -> str:
    """Return a figure with its caption, or an empty string without a topology."""
    if found is None:
        return ""
    caption = element("figcaption", escape("; ".join(sentences(found))))
    drawn = element("figure", caption + topology_svg(found), class_="topology", tabindex="0")
    from markupsafe import Markup

    return Markup(drawn)  # noqa: S704 - every text in it went through html.escape


def topology_svg(found: Topology) -> str:
    """Return the drawing without a caption."""
    parts: list[str] = []
    places: list[float] = [0.0] * len(found.gpus)
    left = float(_EDGE)
    devices = [*found.gpus, *found.adapters]
    nodes = sorted({device.node for device in devices}, key=lambda node: (node is None, node or 0))
    groups = {node: _groups(found, node) for node in nodes}
    bridge = _PROCESSOR + 24 + (_BRIDGE if any(len(group) > 1 for each in groups.values() for group in each) else 0)
    gpu = bridge + (_ADAPTER if found.adapters else 0)
    bottom = gpu + _TALL + 10
    for node in nodes:
        begin = left
        left += _GAP
        for group in groups[node]:
            left = _group(parts, group, places, left, (bridge, gpu)) + _GAP
        title = "processor" if node is None else f"NUMA node {node}"
        parts.insert(0, _box(begin, 8, left - begin, bottom - 8, "node"))
        parts.append(_box(begin + _GAP, _PROCESSOR - 10, left - begin - 2 * _GAP, 24, "bar"))
        parts.append(text_at(begin + _GAP + 10, _PROCESSOR + 6, title, "told", "start"))  # stays visible on a phone
        left += _GAP
    height = _meeting(parts, found, places, (gpu + _TALL, left - _GAP))
    return element(
        "svg", "".join(parts), viewBox=f"0 0 {left + _EDGE:.0f} {height:.0f}", width=f"{left + _EDGE:.0f}", role="img",
        aria_label="; ".join(sentences(found)),
    )  # fmt: skip


def _groups(found: Topology, node: int | None) -> list[list[tuple[int | None, Device]]]:
    """Return a node's devices grouped by bridge; GPUs come with their numbers."""
    groups: dict[str, list[tuple[int | None, Device]]] = {}
    numbered: list[tuple[int | None, Device]] = [*enumerate(found.gpus), *((None, device) for device in found.adapters)]
    for number, device in numbered:
        if device.node == node:
            groups.setdefault(device.root or device.name, []).append((number, device))
    return list(groups.values())


def _group(
    parts: list[str], group: list[tuple[int | None, Device]], places: list[float], left: float, rows: tuple[int, int]
) -> float:
    """Draw the devices below one bridge and return their right edge; show the bridge only if it joins several."""
    gpus = [(number, device) for number, device in group if number is not None]
    others = [device for number, device in group if number is None]
    adapter, gpu = rows
    width = max(len(gpus), len(others)) * _COLUMN - (_COLUMN - _CARD)
    joins = len(group) > 1
    if joins:
        parts.append(line_of(left + width / 2, _PROCESSOR + 14, left + width / 2, adapter - 34, class_="wire"))
        bridge = element("title", escape(group[0][1].root)) + _box(left, adapter - 34, width, 24, "bar")
        parts.append(element("g", bridge))
        parts.append(
            text_at(
                left + width / 2, adapter - 18, "PCIe bridge" if width < 2 * _CARD else "PCI Express bridge", "told"
            )
        )
    begin = adapter - 10 if joins else _PROCESSOR + 14
    for column, device in enumerate(others):
        x = left + column * _COLUMN + 12
        parts.append(line_of(x + 42, begin, x + 42, adapter, class_="wire"))
        parts.append(_card(device, x, adapter, _CARD - 12, 52))
    for column, (number, device) in enumerate(gpus):
        x = left + column * _COLUMN
        way = x + (5 if others else _CARD / 2)
        parts.append(line_of(way, begin, way, gpu, class_="wire narrow" if device.narrow else "wire"))
        parts.append(_card(device, x, gpu, _CARD, _TALL))
        places[number] = x + _CARD / 2
    return left + width


def _card(device: Device, x: float, y: float, width: float, height: float) -> str:
    title = element("title", escape(" ".join(filter(None, [device.name, device.place, *device.lines]))))
    texts = [text_at(x + width / 2, y + 19, device.name, "name")]
    room = int(width / 7.4)
    for number, line in enumerate(device.lines[: 2 if height > 55 else 1]):
        shown = line if len(line) <= room else line[: room - 1] + "…"
        texts.append(text_at(x + width / 2, y + 36 + 15 * number, shown, "axis"))
    return element("g", title + _box(x, y, width, height, device.kind) + "".join(texts))


def _box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return element("rect", x=f"{x:.1f}", y=f"{y:.1f}", width=f"{width:.1f}", height=f"{height:.1f}", rx=6, class_=kind)


def _meeting(parts: list[str], found: Topology, places: list[float], corner: tuple[int, float]) -> float:
    """Draw the NVLinks or NVSwitches below the GPUs and return the picture's height."""
    under, right = corner
    if found.switched:
        parts.append(_box(_EDGE, under + 42, right - _EDGE, 26, "bar link"))
        parts.append(text_at(_EDGE + 10, under + 59, "NVSwitch", "told", "start"))
        for x, up in zip(places, found.links, strict=True):
            parts.append(line_of(x, under, x, under + 42, class_="wire link"))
            parts.append(text_at(x + 6, under + 30, "NVLink" if up is None else f"{up} NVLinks", anchor="start"))
        return under + 78
    pairs = [
        (i, j, int(link[1]))
        for i, row in enumerate(found.ways)
        for j, way in enumerate(row)
        if i < j and (link := _LINK.fullmatch(way))
    ]
    deep = 0.0
    for i, j, links in pairs:
        depth = 24.0 + 16 * (j - i)
        deep = max(deep, depth)
        low = f"{under + depth * 1.3:.1f}"
        bend = f"M{places[i]:.1f} {under} C{places[i]:.1f} {low} {places[j]:.1f} {low} {places[j]:.1f} {under}"
        title = element("title", escape(f"GPU {i} and GPU {j}: {links} NVLinks"))
        parts.append(element("path", title, d=bend, fill="none", class_="wire link"))
        parts.append(text_at((places[i] + places[j]) / 2, under + depth - 4, str(links)))
    if pairs:
        return under + deep + 14
    return under + 18
