"""Rank 0 of the first attempt of a run: publishes for all its ranks what they said last, and waits to be killed."""

from __future__ import annotations

import sys
import time

from ddpmon.parts import Failure
from tests.made_frames import columns, rank_frame
from tests.probe.lone_uplink import lone_uplink

ENDED = 1_700_000_000.0


def main() -> None:
    """Rank 0 ended with an error, rank 1 says nothing, rank 2 finished; "leave" ends as after an exception."""
    uplink = lone_uplink("elastic", ranks=3)
    assert uplink.connect()
    steps = columns([], {})
    error = Failure("RuntimeError", "Connection closed by peer", 41)
    uplink.put_rank(rank_frame(0, 1, steps, run_id=uplink.run, state="failed", failure=error, step=41, sent_at=ENDED))
    uplink.put_rank(rank_frame(1, 1, steps, run_id=uplink.run, state="running", step=42, sent_at=ENDED - 1))
    uplink.put_rank(rank_frame(2, 1, steps, run_id=uplink.run, state="finished", step=40, sent_at=ENDED - 2))
    if "leave" in sys.argv:
        uplink.close(to_successor=True)
        return
    print("published", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
