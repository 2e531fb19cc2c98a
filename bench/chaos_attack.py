"""Who reaches the store and means ill: `python bench/chaos_attack.py URL frames|port SECONDS SEED`.

`frames` overwrites what ranks put by noise, by frames that are not signed or signed with another token, and by older
ones; it puts runs of its own into the list of runs, and into the place of the true one. `port` sends noise to the port.
"""

from __future__ import annotations

import random
import socket
import struct
import sys
import time
from contextlib import suppress

import msgspec

from ddpmon.codec import decode, encode
from ddpmon.schema import RankFrame, RunInfo
from ddpmon.store.base import RUNS_KEY, Store, history_key, node_key, rank_key, run_key
from ddpmon.store.connect import list_runs, parse_target
from ddpmon.store.signed import Checks, Signer
from ddpmon.store.tcp_client import TcpClient

_EVERY_S = 0.1
_MAGIC = struct.pack("<BI", 0, 0x3C85F7CE)  # how a client of a TCPStore begins


def forge(url: str, seconds: float, chance: random.Random) -> None:
    """Overwrite everything that the newest run has put."""
    store = _open(url)
    run = list_runs(store)[-1]
    keys = [key(run, rank) for rank in range(4) for key in (rank_key, history_key)] + [node_key(run, i) for i in (0, 1)]
    keys.append(run_key(run))
    old = dict(zip(keys, store.get_many(keys), strict=True))
    stranger = Signer("another token")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for key in keys:
            content = Checks(None).open(key, old[key] or b"") or b""
            choices = [chance.randbytes(chance.choice((1, 40, 5000))), _hostile(key, content, chance)]
            choices += [stranger.seal(key, content), old[chance.choice(keys)] or b"x", b""]
            if key != run_key(run):
                choices.append(old[key] or b"x")
            store.put(key, chance.choice(choices))
        _forge_runs(store, run, Checks(None).open(run_key(run), old[run_key(run)] or b"") or b"", chance)
        time.sleep(_EVERY_S)
    store.close()


def _hostile(key: str, content: bytes, chance: random.Random) -> bytes:
    """The true frame with a lie in it, not signed."""
    if "/rank/" not in key or not content:
        return content
    frame = decode(key, content, RankFrame)
    step, state = frame.step + chance.randrange(-50, 50_000), chance.choice(("failed", "finished", "stalled"))
    return encode(msgspec.structs.replace(frame, state=state, seq=frame.seq + 1000, step=step, host="\x1b[2Jevil"))


def _forge_runs(store: Store, run: str, info: bytes, chance: random.Random) -> None:
    """Runs that do not exist, newer than the true one; in a store of one run also instead of it."""
    fake = f"forged-{chance.randrange(3)}"
    if info:
        store.put(run_key(fake), encode(msgspec.structs.replace(decode(run_key(run), info, RunInfo), run_id=fake)))
    if isinstance(store, TcpClient):
        store.put(RUNS_KEY, chance.choice((f"{run}\n{fake}".encode(), fake.encode(), chance.randbytes(500))))
    else:
        store.put(RUNS_KEY, fake.encode())


def besiege(url: str, seconds: float, chance: random.Random) -> None:
    """Connections that send noise, hang up or stay."""
    target, held = parse_target(url), list[socket.socket]()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        noise = chance.randbytes(chance.choice((1, 7, 500, 70_000)))
        with suppress(OSError):
            attacker = socket.create_connection((target.host, target.port), timeout=2.0)
            held.append(attacker)
            attacker.sendall(chance.choice((b"", noise, _MAGIC + noise, _MAGIC[:3], b"GET / HTTP/1.1\r\n\r\n")))
        if len(held) > 30:
            held.pop(chance.randrange(len(held))).close()
        time.sleep(_EVERY_S / 5)


def _open(url: str) -> Store:
    target = parse_target(url)
    if target.redis is None:
        return TcpClient(target.host, target.port)
    from ddpmon.store.redis import RedisStore

    return RedisStore(target.redis)


if __name__ == "__main__":
    attack = {"frames": forge, "port": besiege}[sys.argv[2]]
    attack(sys.argv[1], float(sys.argv[3]), random.Random(int(sys.argv[4])))
