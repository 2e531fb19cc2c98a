"""What each bucket takes: the words of its title, in as much room as there is."""

from __future__ import annotations

import numpy as np
import pytest

from ddpmon.snapshot import BucketView
from ddpmon.tui.draw.timeline_view import bucket_lines
from tests.tui.test_drawing import LOOKS, text_of


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (100, "least of any rank, steps 1,096-1,115, ms, █ hidden, ▒ exposed"),
        (56, "steps 1,096-1,115, ms, █ hidden, ▒ exposed"),
        (46, "steps 1,096-1,115, ms, ▒ exposed"),
        (40, "ms, █ hidden, ▒ exposed"),
    ],
)
def test_the_title_of_the_buckets_says_what_their_shades_mean(width: int, said: str) -> None:
    """In 160 columns and fewer only the documents told that hatched is exposed."""
    buckets = BucketView((1 << 20, 1 << 20), np.array([4.69, 2.0]), np.array([1.8, 0.0]), 1096, 1115)
    assert text_of(bucket_lines(buckets, width, 6, LOOKS["colour"]))[0].rstrip(" ─").endswith(f"─ {said}")
    in_ascii = said.replace("█", "=").replace("▒", "#")
    assert text_of(bucket_lines(buckets, width, 6, LOOKS["ascii"]))[0].rstrip(" -").endswith(f"- {in_ascii}")
