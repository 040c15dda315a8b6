"""The terminal of the live view: curses writes only the cells that changed, and leaves everything as it was."""

from __future__ import annotations

import curses
import locale
import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from gpusetup.watch.view import Span

__all__ = ["Screen"]

_PLAIN = str.maketrans({"…": "~", "↑": "^", "↓": "v", "°": " ", "⏎": "="})
"""For a terminal that does not show UTF-8."""
_NAMES = {
    curses.KEY_UP: "up", curses.KEY_DOWN: "down", curses.KEY_PPAGE: "page up", curses.KEY_NPAGE: "page down",
    curses.KEY_HOME: "home", curses.KEY_END: "end", curses.KEY_LEFT: "left", curses.KEY_RIGHT: "right",
    curses.KEY_ENTER: "enter", curses.KEY_BACKSPACE: "back", 10: "enter", 13: "enter", 27: "escape", 127: "back",
    8: "back", curses.KEY_RESIZE: "resize",
}  # fmt: skip


class Screen:
    """The whole terminal, for as long as the block runs."""

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
        """Show a picture."""
        width, height = self.size
        self._window.erase()
        for place, line in enumerate(lines[:height]):
            column = 0
            for span in line:
                room = width - column - (place == height - 1)  # the last cell of all would scroll
                text = span.text[: max(0, room)]
                self._window.addstr(place, column, text if self._utf8 else text.translate(_PLAIN), self._style(span))
                column += len(text)
                if column >= width:
                    break
        self._window.refresh()

    def typed(self) -> Iterator[str]:
        """Yield what was typed since: letters as they are, other keys by name."""
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

    def _style(self, span: Span) -> int:
        return self._styles.get(span.style, 0)


def _styles() -> dict[str, int]:
    """Return what each style is on this terminal; one without colours has bold and reverse."""
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
