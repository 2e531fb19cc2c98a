"""`python -m ddpmon`: the command line."""

from ddpmon.cli import main

if __name__ == "__main__":
    main()
