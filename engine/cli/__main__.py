"""`python -m engine.cli`: policyctl, also where its script is not on the PATH."""

from engine.cli.main import main

if __name__ == "__main__":
    main()
