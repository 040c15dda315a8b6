"""The lines of styled text on the terminal; another module draws them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpusetup.drive.causes import counted
from gpusetup_fleet.model.watch import GpuNow, Program
from gpusetup_fleet.watch import figures as f
from gpusetup_fleet.watch.figures import SORTS, Figures, Filter, ordered, ordered_gpus
from gpusetup_fleet.watch.fleet import Link

HELP = "q quit  ↑↓ move  ⏎ open  e all  p programs  s sort  r turn  / filter"
_TILE = 39
"""The width of a host in the view with hosts side by side."""
_NAME = 20


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    style: str = ""
    """title, dim, bad, warn, good, chosen; empty: plain."""


@dataclass(frozen=True)
class Row:
    """One line of the list: a host, one of its GPUs, or a program on one."""

    kind: str
    name: str
    link: Link
    figures: Figures | None = None
    program: Program | None = None

    @property
    def style(self) -> str:
        """The style of the line."""
        if self.figures is None:
            return "dim"
        if self.link.state != "live" and self.kind == "gpu":
            return "dim"  # old figures
        score = self.figures.trouble.score
        return "bad" if score >= f.GRAVE else "dim" if self.link.state in ("waiting", "connecting") else ""


class _Column(NamedTuple):
    title: str
    width: int
    text: Callable[[Figures], str]
    rank: int
    """On a narrow terminal the highest rank is left out first."""


_COLUMNS = (
    _Column("UTIL", 5, lambda row: f.percent(row.utilization), 0),
    _Column("MEM", 4, lambda row: f.percent(row.memory_share), 0),
    _Column("MEMORY", 9, lambda row: f.pair(f.size(row.memory_used), f.size(row.memory_total)), 2),
    _Column("POWER", 11, lambda row: f.pair(_watts(row.power), _watts(row.power_limit)), 1),
    _Column("TEMP", 5, lambda row: "" if row.temperature is None else f"{row.temperature}°C", 0),
    _Column("CLOCK", 7, lambda row: "" if row.clock is None else f"{row.clock}MHz", 3),
    _Column("PCIE ↑/↓", 9, lambda row: f.pair(f.rate(row.pcie_tx), f.rate(row.pcie_rx)), 4),
    _Column("NVLINK ↑/↓", 10, lambda row: f.pair(f.rate(row.nvlink_tx), f.rate(row.nvlink_rx)), 5),
)
_NOTE = 24


def _watts(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value / 1000:.1f}kW" if value >= 9999.5 else f"{value:.0f}W"


def columns_for(width: int) -> tuple[_Column, ...]:
    """Return the columns that fit between name and note."""
    chosen = list(_COLUMNS)
    while len(chosen) > 3 and _NAME + _NOTE + sum(column.width + 1 for column in chosen) > width:
        chosen.remove(max(chosen, key=lambda column: column.rank))
    return tuple(chosen)


def cells(name: str, row: Figures, columns: Sequence[_Column], width: int) -> str:
    """Return a line of the list."""
    text = _cut(name, _NAME).ljust(_NAME)
    text += "".join(" " + _cut(column.text(row), column.width).rjust(column.width) for column in columns)
    return _cut(f"{text}  {row.note}", width)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


@dataclass
class View:
    """The viewer's choices, and the lines that they result in."""

    sort: str = "name"
    turned: bool = False
    chosen: Filter = field(default_factory=lambda: Filter(()))
    programs: bool = True
    opened: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    all_open: bool | None = None
    """None: open all hosts if their GPUs fit on the screen."""
    at: int = 0
    top: int = 0
    message: str = ""

    def lines(self, links: Sequence[Link], width: int, height: int, clock: str) -> list[list[Span]]:
        """Return the screen: as many lines as the terminal has."""
        hosts = self._hosts(links)
        body = max(1, height - 3)
        lines = [self._summary(links, width, clock)]
        if self._side_by_side(hosts, width, body):
            lines += self._tiles(hosts, width, body)
        else:
            lines += self._list(self._rows(hosts, body), width, body)
        lines = lines[: height - 1]
        lines += [[] for _ in range(height - 1 - len(lines))]
        return [*lines, [Span(_cut(self.message or HELP, width), "dim")]]

    def listing(self, links: Sequence[Link], width: int, clock: str = "") -> str:
        """Return all hosts and GPUs as plain text."""
        columns = columns_for(width)
        self.all_open = True
        lines = [self._summary(links, width, clock)[0].text.rstrip(), _head(columns)]
        for row in self._rows(self._hosts(links), 0):
            text = _program(row.program) if row.figures is None else cells(row.name, row.figures, columns, width)
            lines.append(_cut(text, width).rstrip())
        return "\n".join(lines) + "\n"

    def _hosts(self, links: Sequence[Link]) -> list[tuple[Link, tuple[GpuNow, ...]]]:
        shown = []
        for link in ordered(links, self.sort, turned=self.turned):
            gpus = self.chosen.gpus(link)
            if gpus is not None:
                shown.append((link, gpus))
        return shown

    def _summary(self, links: Sequence[Link], width: int, clock: str) -> list[Span]:
        live = sum(link.state == "live" for link in links)
        gpus = [gpu for link in links if link.look is not None and link.state == "live" for gpu in link.look.gpus]
        busy = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
        power = sum(gpu.power or 0.0 for gpu in gpus)
        grave = sum(f.trouble(gpu).score >= f.GRAVE for gpu in gpus)
        parts = [f"{live} of {counted(len(links), 'host')} live", counted(len(gpus), "GPU")]
        parts += [f"{sum(busy) / len(busy):.0f}% busy"] if busy else []
        parts += [f"{power / 1000:.1f} kW"] if power else []
        parts += [f"{grave} in trouble"] if grave else []
        asked = [f"sort {self.sort}"] if self.sort != "name" else []
        asked += ["filter " + " ".join(self.chosen.terms)] if self.chosen.terms else []
        room = width - len(clock) - 1
        # Sort and filter always stay visible: a filtered list must not look like a complete one.
        counts = _cut("  ".join(parts), max(0, room - len("  ".join(["", *asked]))))
        text = _cut("  ".join([counts, *asked]), room)
        return [Span(text.ljust(width - len(clock)) + clock, "title")]

    def _side_by_side(self, hosts: Sequence[object], width: int, body: int) -> bool:
        fits_not = len(hosts) > body - 1
        return fits_not and not self.opened and not self.all_open and width >= 2 * (_TILE + 1)

    def _tiles(self, hosts: Sequence[tuple[Link, tuple[GpuNow, ...]]], width: int, body: int) -> list[list[Span]]:
        across = width // (_TILE + 1)
        page = across * body
        self.at = max(0, min(self.at, len(hosts) - 1))
        first = self.at // page * page
        lines: list[list[Span]] = [[] for _ in range(body)]
        for place, (link, _) in enumerate(hosts[first : first + page]):
            row = Row("host", link.host, link, f.of_host(link))
            style = "chosen" if first + place == self.at else row.style
            lines[place % body] += [Span(_tile(row), style), Span(" ")]
        return lines

    def _rows(self, hosts: Sequence[tuple[Link, tuple[GpuNow, ...]]], body: int) -> list[Row]:
        total = sum(1 + len(gpus) for _, gpus in hosts)
        every = self.all_open if self.all_open is not None else total <= body - 1
        rows = []
        for link, gpus in hosts:
            rows.append(Row("host", link.host, link, f.of_host(link)))
            if link.host in self.opened or (every and link.host not in self.closed):
                for gpu in ordered_gpus(gpus, self.sort, turned=self.turned):
                    product = f.plain(gpu.name or "GPU").removeprefix("NVIDIA ").removeprefix("GeForce ")
                    rows.append(Row("gpu", f"  {gpu.index} {product}", link, f.of_gpu(gpu)))
                    rows += [Row("program", "", link, program=program) for program in gpu.processes if self.programs]
        return rows

    def _list(self, rows: list[Row], width: int, body: int) -> list[list[Span]]:
        columns = columns_for(width)
        room = body - 1
        self.at = max(0, min(self.at, len(rows) - 1))
        self.top = max(0, min(self.top, self.at, max(0, len(rows) - room)))
        self.top = max(self.top, self.at - room + 1)
        lines = [[Span(_cut(_head(columns), width), "dim")]]
        for place, row in enumerate(rows[self.top : self.top + room], self.top):
            text = _program(row.program) if row.figures is None else cells(row.name, row.figures, columns, width)
            style = "chosen" if place == self.at else "bold" if row.kind == "host" and not row.style else row.style
            lines.append([Span(_cut(text, width).ljust(width if place == self.at else 0), style)])
        return lines

    def move(self, by: int) -> None:
        """Move the mark; `lines` keeps it within the list."""
        self.at = max(0, self.at + by)

    def open_chosen(self, links: Sequence[Link], body: int) -> None:
        """Open or close the host under the mark."""
        hosts = self._hosts(links)
        rows = self._rows(hosts, body)
        if self._side_by_side(hosts, 1 << 20, body):
            rows = [Row("host", link.host, link) for link, _ in hosts]
        if not rows:
            return
        name = rows[min(self.at, len(rows) - 1)].link.host
        shown = any(row.kind == "gpu" and row.link.host == name for row in rows)
        (self.opened.discard if shown else self.opened.add)(name)
        (self.closed.add if shown else self.closed.discard)(name)
        rows = self._rows(hosts, body)
        self.at = next(place for place, row in enumerate(rows) if row.link.host == name)

    def open_all(self) -> None:
        """Open all hosts, or close them."""
        self.all_open = not self.all_open
        self.opened.clear()
        self.closed.clear()
        self.at = 0

    def next_sort(self) -> None:
        """Switch to the next sort order."""
        names = ["name", *SORTS]
        self.sort = names[(names.index(self.sort) + 1) % len(names)]


def _head(columns: Sequence[_Column]) -> str:
    return "HOST".ljust(_NAME) + "".join(" " + column.title.rjust(column.width) for column in columns)


def _tile(row: Row) -> str:
    told = row.figures
    if told is None or told.trouble.score >= f.GRAVE or row.link.look is None:
        note = told.note if told is not None else ""
        return _cut(f"{_cut(row.name, 16):16} {note}", _TILE).ljust(_TILE)
    heat = "" if told.temperature is None else f"{told.temperature}°"
    figures = f"{f.percent(told.utilization):>4} {f.percent(told.memory_share):>4} {heat:>4} {_watts(told.power):>6}"
    return _cut(f"{_cut(row.name, 16):16} {figures}", _TILE).ljust(_TILE)


def _program(program: Program | None) -> str:
    if program is None:
        return ""
    words = [f"      {program.pid:>8}", f"{_cut(f.plain(program.user) or '?', 10):10}", f"{f.size(program.memory):>5}"]
    words += [f"{f.percent(program.utilization):>4}", f.plain(program.container), f.plain(program.command) or "?"]
    return " ".join(word for word in words if word)
