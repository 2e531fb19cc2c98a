"""Run the dashboard on a made-up run: `python -m tests.tui.play --ranks 8 --straggler 5`."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace

from ddpmon.snapshot import Snapshot
from ddpmon.tui.app import WatchApp
from ddpmon.tui.choices import NOTIFY, THEMES, GlyphSet
from ddpmon.tui.preferences import Preferences
from tests.tui.made_runs import FAILED, NOTES, Made, Playing

WORSE_EVERY = 4  # readings


class Noisy(Playing):
    """Writes where native libraries write their warnings."""

    def tick(self) -> Snapshot:
        os.write(2, b"native noise\n")
        return super().tick()


class Worsening(Playing):
    """Loses rank 3 after a few readings, and some more readings later rank 2 fails."""

    ticks = 0

    def tick(self) -> Snapshot:
        self.ticks += 1
        lost = (3,) if self.ticks >= WORSE_EVERY else ()
        failed = (FAILED,) if self.ticks >= 2 * WORSE_EVERY else ()
        self.made = replace(self.made, lost=lost, findings=failed)
        return super().tick()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--straggler", type=int)
    parser.add_argument("--lost", type=int, action="append", default=[])
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--troubled", type=int, action="append", default=[], help="a node whose machine is in trouble")
    parser.add_argument("--hidden", type=int, action="append", default=[], help="a node whose processes are hidden")
    parser.add_argument("--notes", action="store_true")
    parser.add_argument("--ascii", action="store_true")
    parser.add_argument("--theme", choices=THEMES, default="auto")
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--pace", type=int, default=6)
    parser.add_argument("--noise", action="store_true", help="write to file descriptor 2 at each reading")
    parser.add_argument("--no-mouse", action="store_true")
    parser.add_argument("--worsens", action="store_true", help="lose a rank after a while, then let another one fail")
    parser.add_argument("--notifications", choices=NOTIFY, default="off")
    args = parser.parse_args()
    made = Made(
        ranks=args.ranks, per_node=8 if args.ranks > 8 else 4, straggler=args.straggler, lost=tuple(args.lost),
        gpu=args.gpu, findings=NOTES if args.notes else (),
        troubled=tuple(args.troubled), hidden=tuple(args.hidden),
    )  # fmt: skip
    source = Noisy(made, args.pace) if args.noise else Playing(made, args.pace)
    source = Worsening(made) if args.worsens else source
    glyphs: GlyphSet = "ascii" if args.ascii else "full"
    chosen = Preferences(interval=args.interval, glyphs=glyphs, theme=args.theme, notifications=args.notifications)
    app = WatchApp(source, replace(chosen, mouse=not args.no_mouse))
    app.run()
    print(app.summary())


if __name__ == "__main__":
    main()
