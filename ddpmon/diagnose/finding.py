"""What a verdict looks like, whoever draws it."""

from __future__ import annotations

from ddpmon.diagnose.alert import SEVERITIES, Severity, at_or_above
from ddpmon.diagnose.alert import Alert as Finding

__all__ = ["SEVERITIES", "Finding", "Severity", "at_or_above"]
