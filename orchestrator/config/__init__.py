"""Everything that can be configured. It is read at the edge: nothing further in ever sees one of Hydra's DictConfigs.

``schema.py`` names what there is, ``compose.py`` has Hydra put it together, ``plain.py`` types it, ``validation.py``
checks it, and ``explain.py`` says what is wrong with it.
"""

from orchestrator.config.compose import CONF, PROJECT, compose, from_composed
from orchestrator.config.plain import from_plain, to_plain
from orchestrator.config.schema import (
    Config,
    LauncherConfig,
    PolicyConfig,
    SweepConfig,
    task_of,
    world_of,
)
from orchestrator.config.validation import validate

__all__ = [
    "CONF",
    "PROJECT",
    "Config",
    "LauncherConfig",
    "PolicyConfig",
    "SweepConfig",
    "compose",
    "from_composed",
    "from_plain",
    "task_of",
    "to_plain",
    "validate",
    "world_of",
]
