"""The release, apart from the package's own module, whose public names lead to the probe."""

from __future__ import annotations

__version__ = "0.1.0"
