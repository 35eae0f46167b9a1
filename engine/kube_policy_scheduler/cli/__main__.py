"""The command `policyctl`; Ctrl-C ends it without a word, even while it imports."""

import signal
import sys


def main() -> None:
    """Run the command line of the process and exit."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kube_policy_scheduler.cli.main import run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run())


if __name__ == "__main__":
    main()
