"""Rank 0 of a run in a container: says how to watch it, and ends with its standard input."""

from __future__ import annotations

import sys

from tests.made_frames import columns, rank_frame
from tests.probe.lone_uplink import lone_uplink


def main() -> None:
    """Publish a frame and wait."""
    uplink = lone_uplink("contained")
    assert uplink.connect()
    uplink.put_rank(rank_frame(0, 1, columns([], {}), run_id=uplink.run))
    sys.stdin.read()
    uplink.close()


if __name__ == "__main__":
    main()
