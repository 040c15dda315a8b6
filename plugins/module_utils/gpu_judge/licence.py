"""Judge a vGPU guest's licence settings from the probe's facts."""

from typing import Any, Dict, Optional

FEATURES = {"vgpu": 1, "workstation": 2, "gaming": 3, "compute": 4}
"""Licensable feature → FeatureType of the licence daemon."""
TOKEN = "client_configuration_token_gpusetup.tok"  # noqa: S105 - its file's name


def lacking(there: Optional[Dict[str, Any]], token_sha256: str, feature: str) -> str:
    """Return the first setting that is wrong; an empty text when none is."""
    if there is None or TOKEN not in there["tokens"]:
        return "the token is missing"
    if there["tokens"][TOKEN] != token_sha256:
        return "another token is there"
    if there["server"]:
        return "the settings name a legacy licence server too; the daemon uses one or the other"
    if there["feature"] != FEATURES[feature]:
        return "FeatureType is {}, and {} is {}".format(there["feature"], feature, FEATURES[feature])
    return ""
