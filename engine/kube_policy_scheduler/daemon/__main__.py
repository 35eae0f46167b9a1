"""`python -m kube_policy_scheduler.daemon`, the same as the command `policy-scheduler`."""

from kube_policy_scheduler.daemon.main import main

if __name__ == "__main__":
    main()
