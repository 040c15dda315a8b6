"""Is the kernel module there? The file on disk decides, never what DKMS says of itself."""

import glob
import os
import re

from . import files


def proof(found, kernel, version, flavour):
    """Return why the module file found for a kernel is not the wanted one, None when it is."""
    if found is None:
        return f"no nvidia module for kernel {kernel}"
    if version and found["version"] and found["version"] != version:
        return "the nvidia module for kernel {} is {}, not {}".format(kernel, found["version"], version)
    if flavour and found["flavour"] and found["flavour"] != flavour:
        return "the nvidia module for kernel {} is the {} one, not the {} one".format(kernel, found["flavour"], flavour)
    return None


def nvidia_modules(told):
    """Return the (name, version) of NVIDIA's modules in what `dkms status` says."""
    return sorted(set(re.findall(r"^(nvidia[\w-]*)(?:/|, )([\w.]+)", told, re.MULTILINE)))


def build_error(since=0.0, root="/"):
    """Return the last build error and its log: {"log", "error", "tail"}, None when no build log is newer than `since`."""
    logs = [
        path
        for path in glob.glob(os.path.join(root, "var/lib/dkms/*/*/build/make.log"))
        if os.path.getmtime(path) >= since
    ]
    logs += [
        path
        for path in glob.glob(os.path.join(root, "var/lib/dkms/*/*/*/*/log/make.log"))
        if os.path.getmtime(path) >= since
    ]
    for path in sorted(logs, key=os.path.getmtime, reverse=True):
        text = files.read_text(path) or ""
        errors = first_error(text)
        if errors:
            return {"log": path, "error": errors, "tail": text.splitlines()[-30:]}
    return None


def first_error(text):
    """Return the compiler's first error, or make's when the compiler had none."""
    for pattern in (r"^.*\b(?:fatal )?error:.*$", r"^(?:ERROR|FATAL): .*$", r"^make(?:\[\d+\])?: \*\*\* .*$"):
        match = re.search(pattern, text, re.MULTILINE)
        if match:
            return match.group(0).strip()[-300:]
    return ""
