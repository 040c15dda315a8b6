"""Mask passwords, tokens and keys, which have common forms, in text before it leaves a machine."""

import re

_VALUE = r"""("[^"\n]*"|'[^'\n]*'|[^\s"',;&}]+)"""
_SECRETS = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"), "(private key)"),
    (
        re.compile(
            r"(?i)\b([\w-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|credential|private[_-]?key)"
            r"""[\w-]*["']?\s*[=:]\s*)""" + _VALUE
        ),
        r"\1(masked)",
    ),
    (re.compile(r"(?i)(authorization\s*[:=]\s*(?:bearer|basic|token)?\s*)\S+"), r"\1(masked)"),
    (re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/-]{8,}=*"), r"\1(masked)"),
    (re.compile(r"(\w+://)[^/\s:@]*:[^/\s@]+@"), r"\1(masked)@"),
    (re.compile(r"\b(?:hf|ghp|gho|ghs|ghu|github_pat|glpat|nvapi|sk|xox[abpr])[_-][A-Za-z0-9_-]{16,}"), "(masked)"),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), "(masked)"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"), "(masked)"),
)


def mask(text: str) -> str:
    """Return the text with secrets masked."""
    for expression, instead in _SECRETS:
        text = expression.sub(instead, text)
    return text
