"""The best trial's config, in a form that runs as it is."""

from pathlib import Path

from orchestrator.config import to_plain
from orchestrator.job.spec import TrialSpec, as_yaml, write_aside

NOT_OF_THE_TRIAL = ("sweep", "launcher", "tracking", "output_dir", "dry_run", "require")
"""Parts of the config that belong to whoever runs it."""


def write(folder: Path, spec: TrialSpec, value: float, objective: str) -> None:
    """``best/config.yaml``: ``python -m orchestrator --config-dir <folder> +best=config`` trains it again."""
    plain = {key: part for key, part in to_plain(spec.config).items() if key not in NOT_OF_THE_TRIAL}
    (folder / "best").mkdir(exist_ok=True)
    told = f"Trial {spec.number} of study '{spec.study}': {objective} {value:.4f}, not confirmed on fresh seeds."
    text = f"# @package _global_\n# {told}\n"
    write_aside(folder / "best" / "config.yaml", text + as_yaml(plain))
