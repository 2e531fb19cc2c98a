"""What the shell, a launcher or a scheduler around the tests has set does not reach them: they say what they want."""

from __future__ import annotations

import os

_LAUNCHERS = ("DDPMON", "TORCHELASTIC_", "TORCH_CPP_LOG", "SLURM_", "SSH_", "TEXTUAL")
_VARIABLES = {
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT"),
    *("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"),
}

for _name in list(os.environ):
    if _name.startswith(_LAUNCHERS) or _name in _VARIABLES:
        del os.environ[_name]
