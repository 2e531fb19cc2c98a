"""How many messages a run may cause."""

from __future__ import annotations

from ddpmon.guard.policy import GuardPolicy


class Budget:
    """A token bucket, of which the last tokens are for critical alerts.

    Args:
        policy: its size, its reserve, and how fast it fills.
        now: monotonic, in seconds.
    """

    def __init__(self, policy: GuardPolicy, now: float) -> None:
        self._policy, self._tokens, self._at = policy, float(policy.burst), now

    def allows(self, now: float, *, critical: bool) -> bool:
        """Whether a message may go now; one that may is counted."""
        policy = self._policy
        self._tokens = min(float(policy.burst), self._tokens + max(0.0, now - self._at) / policy.refill_s)
        self._at = now
        if self._tokens < 1 + (0 if critical else policy.reserve):
            return False
        self._tokens -= 1
        return True
