"""Failures that speak to a person: what happened, why, what to do."""


class HostFailure(Exception):
    """A module cannot go on; `reference` is stable and documented in docs/reference/host-failures.md."""

    def __init__(self, reference, message, context="", note="", hint=""):
        super().__init__(message)
        self.fields = {"reference": reference, "message": message, "context": context, "note": note, "hint": hint}

    def as_dict(self):
        """Return the failure as plain data."""
        return dict(self.fields)

    def text(self):
        """Return the failure as one paragraph for Ansible's `msg`."""
        parts = ["{reference}: {message}".format(**self.fields)]
        for key, title in (("context", "at"), ("note", "note"), ("hint", "do")):
            if self.fields[key]:
                parts.append(f"{title}: {self.fields[key]}")
        return "\n".join(parts)


def end(module, failure, **result):
    """Let an Ansible module fail with a failure (a HostFailure or its plain data)."""
    if isinstance(failure, dict):
        failure = HostFailure(**failure)
    module.fail_json(msg=failure.text(), gpu_failure=failure.as_dict(), **result)
