"""Site policies: which drivers and CUDA toolkits, chosen or installed, a policy forbids."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from gpusetup.matrix.load import Matrix
from gpusetup.matrix.security import vulnerable
from gpusetup.model.release import DriverBranch
from gpusetup.model.request import Policy
from gpusetup.resolve.domains import Value, branch_of
from gpusetup.resolve.space import Space
from gpusetup.versions import cuda_minor, nv

_ALLOWS = {
    "newest_driver_branch": "no driver branch newer than R{value}",
    "oldest_driver": "no driver older than {value}",
    "forbid_end_of_life": "no {component} past its end of life",
    "forbid_cvss_from": "no {component} with a known vulnerability of CVSS {value:g} or more",
}
TITLES = {"driver": "driver", "cuda": "CUDA toolkit"}
_STRICTER: dict[str, Callable[[list[Any]], Any]] = {
    "newest_driver_branch": min,
    "oldest_driver": partial(max, key=nv),
    "forbid_end_of_life": lambda found: tuple(sorted({one for each in found for one in each})),
    "forbid_cvss_from": min,
}


def stricter(*policies: Policy | None) -> Policy | None:
    """Merge policies: keep the strictest value of each key, with the places that set it."""
    given = [policy for policy in policies if policy is not None]
    if len(given) < 2:
        return next(iter(given), None)
    values, places = dict[str, Any](), dict[str, str]()
    for key, strictest in _STRICTER.items():
        told = [(value, dict(one.places)[key]) for one in given if (value := getattr(one, key)) not in {None, ()}]
        if told:
            values[key] = strictest([value for value, _place in told])
            places[key] = " and ".join(
                place for value, place in told if value == values[key] or isinstance(value, tuple)
            )
    return replace(given[0], **values, places=tuple(sorted(places.items())))


def rule_of(key: str) -> str:
    """Return the name of the resolver rule for a policy key."""
    return f"policy-{key}".replace("_", "-")


KEYS = {rule_of(key): key for key in _ALLOWS}


def breaches(policy: Policy, matrix: Matrix, component: str, version: str) -> Iterator[tuple[str, str]]:
    """Yield each policy key that a release breaks, with the reason; support ends as of the matrix's date."""
    if component == "driver":
        branch, newest = nv(version).major, policy.newest_driver_branch
        if newest is not None and branch > newest:
            yield ("newest_driver_branch", f"R{branch} is newer than R{newest}")
        if policy.oldest_driver is not None and nv(version) < nv(policy.oldest_driver):
            yield ("oldest_driver", f"it is older than {policy.oldest_driver}")
    own = _branch(matrix, component, version) if component in policy.forbid_end_of_life else None
    if own is not None and own.has_ended(matrix.date):
        whose = "" if component == "driver" else ", its driver branch,"
        day = f" on {own.eol}" if own.eol != "unknown" else ""
        yield ("forbid_end_of_life", f"the support of R{own.branch}{whose} ended{day}")
    least = policy.forbid_cvss_from
    if least is not None and (known := vulnerable(matrix, component, version, least)):
        yield ("forbid_cvss_from", f"it has {known}; {known.fixed} ends what is known")


def _branch(matrix: Matrix, component: str, version: str) -> DriverBranch | None:
    """Return the driver branch that decides when support ends: a toolkit ends with the driver it shipped with."""
    if component == "driver":
        return branch_of(matrix, version)
    minor = cuda_minor(version)
    own = next((item.driver_branch for item in matrix.cuda.releases if item.minor == minor), None)
    return next((item for item in matrix.driver.branches if item.branch == own), None)


def add_policy(space: Space) -> None:
    """Exclude the drivers and toolkits that the policy forbids."""
    policy = space.request.policy
    if policy is None:
        return
    for component in ("driver", "cuda"):
        broken = {
            value.version: {key for key, _ in breaches(policy, space.matrix, component, value.version)}
            for value in space.values.get(component, ())
        }
        for key in _ALLOWS:
            good = {version for version, keys in broken.items() if key not in keys}
            space.unary(rule_of(key), component, partial(_among, good), subject=policy, origin="request")


def _among(versions: set[str], value: Value) -> bool:
    return value.version in versions


def allowed(policy: Policy, rule: str, component: str) -> str:
    """Return the sentence for a policy rule in a conflict."""
    key = KEYS[rule]
    text = _ALLOWS[key].format(value=getattr(policy, key), component=TITLES[component])
    return f"the policy allows {text} ({policy.quoted(key)})"
