"""Desktops of several people on one host's GPUs."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

BackEnd = Literal["egl", "x"]
"""How VirtualGL reaches a GPU: by EGL without any X server there, or through an X server without a screen."""


class DesktopsWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who gets a desktop, and where it is reached."""

    users: tuple[str, ...]
    """The order counts: the first one's page is at the first port."""
    size: str = "1920x1080"
    session: str = ""
    """The program that draws the desktop; empty: a small window manager that comes along."""
    listen: str = "127.0.0.1"
    port: int = 6080
    certificate: str = ""
    key: str = ""
    group: str = ""
    """Who alone may use the GPUs; empty: as the driver and the distribution have it."""
    backend: BackEnd = "egl"
