"""The program `policy-scheduler`, the same as `python -m kube_policy_scheduler.daemon`."""

import gc

gc.disable()  # modules come to stay, and collections were 8 % of their import; `main` says when there are some again

from kube_policy_scheduler.daemon.main import main  # noqa: E402

if __name__ == "__main__":
    main()
