"""The live view's terminal and keys: curses writes only changed cells, and restores the screen."""

import curses
import locale
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType

from typing_extensions import Self

from gpusetup_fleet.watch.figures import Filter
from gpusetup_fleet.watch.fleet import Link
from gpusetup_fleet.watch.view import Span, View

_PLAIN = str.maketrans({"…": "~", "↑": "^", "↓": "v", "°": " ", "⏎": "="})
"""For terminals without UTF-8."""
_NAMES = {
    curses.KEY_UP: "up", curses.KEY_DOWN: "down", curses.KEY_PPAGE: "page up", curses.KEY_NPAGE: "page down",
    curses.KEY_HOME: "home", curses.KEY_END: "end", curses.KEY_LEFT: "left", curses.KEY_RIGHT: "right",
    curses.KEY_ENTER: "enter", curses.KEY_BACKSPACE: "back", 10: "enter", 13: "enter", 27: "escape", 127: "back",
    8: "back", curses.KEY_RESIZE: "resize",
}  # fmt: skip


class Screen:
    """The whole terminal, until the block ends."""

    def __enter__(self) -> Self:
        locale.setlocale(locale.LC_ALL, "")
        self._utf8 = "utf" in locale.nl_langinfo(locale.CODESET).lower()
        os.environ.setdefault("ESCDELAY", "25")
        self._window = curses.initscr()
        try:
            curses.noecho()
            curses.cbreak()
            self._window.keypad(True)
            self._window.nodelay(True)
            self._styles = _styles()
        except BaseException:
            curses.endwin()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._window.keypad(False)
        curses.nocbreak()
        curses.echo()
        curses.endwin()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        height, width = self._window.getmaxyx()
        return width, height

    def draw(self, lines: Sequence[Sequence[Span]]) -> None:
        """Draw the lines."""
        width, height = self.size
        self._window.erase()
        for place, line in enumerate(lines[:height]):
            column = 0
            for span in line:
                room = width - column - (place == height - 1)  # writing the last cell would scroll
                text = span.text[: max(0, room)]
                shown = text if self._utf8 else text.translate(_PLAIN)
                self._window.addstr(place, column, shown, self._styles.get(span.style, 0))
                column += len(text)
                if column >= width:
                    break
        self._window.refresh()

    def typed(self) -> Iterator[str]:
        """Yield the keys typed since the last call: letters as themselves, other keys by name."""
        while True:
            try:
                key = self._window.get_wch()
            except curses.error:
                return
            code = key if isinstance(key, int) else ord(key)
            if code in _NAMES:
                yield _NAMES[code]
            elif isinstance(key, str) and key.isprintable():
                yield key


def _styles() -> dict[str, int]:
    """Return the attributes of each style on this terminal; without colours, bold and reverse."""
    styles = {"title": curses.A_REVERSE, "chosen": curses.A_REVERSE, "dim": curses.A_DIM, "bold": curses.A_BOLD}
    styles["bad"] = curses.A_BOLD
    with suppress(curses.error):  # a terminal that cannot hide its cursor
        curses.curs_set(0)
    if curses.has_colors() and not os.environ.get("NO_COLOR"):
        curses.start_color()
        curses.use_default_colors()
        curses.init_pair(1, curses.COLOR_RED, -1)
        styles["bad"] = curses.color_pair(1) | curses.A_BOLD
    return styles


_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1}


class Keys:
    """Reads the keyboard and changes the view; `ended` is set when the user quits."""

    def __init__(self, view: View, links: Sequence[Link], screen: Screen) -> None:
        self.view, self.links, self.screen = view, links, screen
        self.ended = self.pressed = False
        self._typed: str | None = None
        """The filter being typed, or None."""

    def read(self) -> None:
        """Handle the typed keys."""
        for key in self.screen.typed():
            self.pressed = True
            if self._typed is None:
                self._act(key)
            else:
                self._type(key)

    def _act(self, key: str) -> None:
        view, page = self.view, max(1, self.screen.size[1] - 4)
        view.message = ""
        if key in ("q", "escape"):
            self.ended = True
        elif key in _MOVES:
            view.move(_MOVES[key])
        elif key in ("left", "right"):
            view.move((page + 1) * (1 if key == "right" else -1))
        elif key in ("page up", "page down"):
            view.move(page * (1 if key == "page down" else -1))
        elif key in ("home", "end"):
            view.at = 0 if key == "home" else 1 << 30
        elif key in ("enter", " "):
            view.open_chosen(self.links, page + 1)
        elif key == "e":
            view.open_all()
        elif key == "p":
            view.programs = not view.programs
        elif key == "s":
            view.next_sort()
        elif key == "r":
            view.turned = not view.turned
        elif key == "/":
            self._typed = " ".join(view.chosen.terms)
            self._show()

    def _type(self, key: str) -> None:
        typed = self._typed or ""
        if key == "enter":
            self._apply(typed)
        elif key == "escape":
            self._typed, self.view.message = None, ""
        elif key == "back":
            self._typed = typed[:-1]
            self._show()
        elif len(key) == 1:
            self._typed = typed + key
            self._show()

    def _show(self) -> None:
        self.view.message = f"filter: {self._typed}_   (words; empty: all)"

    def _apply(self, typed: str) -> None:
        self._typed, self.view.message = None, ""
        self.view.chosen = Filter(typed.split())
