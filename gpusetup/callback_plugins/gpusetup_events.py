"""Ansible's events as JSON lines: an adapter over `gpusetup.drive.callback` (Ansible runs in our interpreter)."""

from ansible.plugins.callback import CallbackBase

from gpusetup.drive.callback import EventWriter

DOCUMENTATION = """
name: gpusetup_events
type: notification
short_description: one JSON object per event, into the file that GPUSETUP_EVENTS names
description: Used by gpusetup itself; other runs are not touched.
"""


class CallbackModule(EventWriter, CallbackBase):  # type: ignore[misc]
    """The callback: all of it is in EventWriter."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "gpusetup_events"
    CALLBACK_NEEDS_ENABLED = True
