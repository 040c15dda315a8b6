"""What keys do in the live view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.errors import BadInputError
from gpusetup.watch.figures import FIELDS, Filter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusetup.cli.watch_screen import Screen
    from gpusetup.watch.link import Link
    from gpusetup.watch.view import View

__all__ = ["Keys"]

_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1}


class Keys:
    """Reads the keyboard and changes the view; `ended` when a person is done."""

    def __init__(self, view: View, links: Sequence[Link], screen: Screen) -> None:
        self.view, self.links, self.screen = view, links, screen
        self.ended = self.pressed = False
        self._typed: str | None = None
        """The filter that is being typed, None when none is."""

    def read(self) -> None:
        """Take what was typed."""
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
        elif key == "?":
            view.message = "filter fields: " + " ".join(FIELDS)

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
        self.view.message = f"filter: {self._typed}_   (util>90 user=anna state!=live word; empty: all)"

    def _apply(self, typed: str) -> None:
        self._typed, self.view.message = None, ""
        try:
            self.view.chosen = Filter(typed.split())
        except BadInputError as error:
            self.view.message = error.message
