# PYTHON_ARGCOMPLETE_OK
"""`gpusetup` and `python -m gpusetup`: run the command line, and end in one line on Ctrl-C even during imports."""

import gc
import sys


def run() -> int:
    """Run the command line and return the exit code."""
    gc.set_threshold(50_000)  # a command makes little garbage; the search for it takes 3 % of a lookup
    try:
        from gpusetup.cli.main import main

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("gpusetup: interrupted\n")
        return 130  # Exit.INTERRUPTED, whose import may be what was interrupted
    finally:
        gc.freeze()  # nor does the interpreter search for it at its end


if __name__ == "__main__":
    sys.exit(run())
