"""Hold the laws against random questions: `python -m tests.property.laws 20000` asks that many, and prints how each is broken.

A question is printed as one types it, so it can be asked again.
"""

import argparse
import collections
import random
import sys
import time

from gpusetup.matrix.load import Matrix
from tools.refresh.laws import Laws
from tools.refresh.questions import question, spelled

MATRIX = Matrix()
ALL = Laws(MATRIX)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=20000, help="how many questions: default %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="another number asks other questions")
    parser.add_argument("--show", type=int, default=5, help="breaches shown of each law")
    arguments = parser.parse_args()
    chance, broken = random.Random(arguments.seed), collections.Counter[str]()
    start, stacks = time.monotonic(), 0
    for _ in range(arguments.count):
        request = question(chance, MATRIX)
        stacks += ALL.answer(request) is not None
        for law, text in ALL.breaches(request):
            broken[law] += 1
            if broken[law] <= arguments.show:
                print(f"{law}: {text}\n    {spelled(request)}", flush=True)
    print(
        f"{arguments.count} questions, {stacks} with a stack, {time.monotonic() - start:.0f} s; breaches: {dict(broken)}"
    )
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
