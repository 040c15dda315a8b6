# PYTHON_ARGCOMPLETE_OK
"""`gpusetup` and `python -m gpusetup`: run the command line, and end in one line on Ctrl-C even during imports."""

import sys


def run() -> int:
    """Run the command line and return the exit code."""
    try:
        from gpusetup.cli.main import main

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("gpusetup: interrupted\n")
        return 130  # Exit.INTERRUPTED, whose import may be what was interrupted


if __name__ == "__main__":
    sys.exit(run())
