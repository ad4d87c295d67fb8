"""Configs of trials worth running again, in a form that runs as it is."""

from pathlib import Path

from orchestrator.config import to_plain
from orchestrator.job.spec import TrialSpec, as_yaml
from orchestrator.search.base import keep

NOT_OF_THE_TRIAL = ("sweep", "confirm", "launcher", "tracking", "output_dir", "doctor", "dry_run", "require")
"""Parts of the config that belong to whoever runs it; but in how many processes it learns is the trial's."""

BEST, ADD_BEST = Path("best") / "config.yaml", "+best=config"
"""``python -m orchestrator --config-dir <study> +best=config`` trains it again."""


def write(file: Path, spec: TrialSpec, told: str) -> None:
    """Write the trial's config to ``<study>/<group>/<name>.yaml``, which ``+<group>=<name>`` adds. ``told``: a line."""
    plain = {key: part for key, part in to_plain(spec.config).items() if key not in NOT_OF_THE_TRIAL}
    plain["launcher"] = {"nproc_per_node": spec.config.launcher.nproc_per_node}
    text = f"# @package _global_\n# Trial {spec.number} of study '{spec.study}': {told}\n{as_yaml(plain)}"
    keep(file, text)
