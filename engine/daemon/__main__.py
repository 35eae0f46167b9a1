"""`python -m engine.daemon`, the same as the command `policy-scheduler`."""

from engine.daemon.main import main

if __name__ == "__main__":
    main()
