"""`ddpmon doctor` as a module, so that a launcher can start it on every host: torchrun ... -m ddpmon.doctor."""

from __future__ import annotations

import sys

from ddpmon.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "doctor")
    main()
