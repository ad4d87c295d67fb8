"""The launcher that a config names."""

import importlib
import inspect
import sys

from orchestrator.config import CONF, LauncherConfig
from orchestrator.errors import UserError, nearest
from orchestrator.job.spec import from_yaml
from orchestrator.launch.base import Launcher


def load(config: LauncherConfig) -> type[Launcher]:
    """The launcher's class. Raises UserError where there is none; imports nothing then, as far as that can be told."""
    key, hint = f"launcher.class_name={config.class_name}", nearest(config.class_name, _known())
    module, _, name = config.class_name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise UserError(f"{key}: expected pkg.mod:Class{hint}")
    if not _exists(module):
        raise UserError(f"{key}: there is no module {module}{hint}")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # it may be anybody's
        told = " ".join(str(error).split())
        raise UserError(f"{key}: {module} can't be imported ({type(error).__name__}: {told})") from error
    if not isinstance(found, type) or not issubclass(found, Launcher) or inspect.isabstract(found):
        what = "there is no such class" if found is None else "not a launcher"
        raise UserError(f"{key}: {what}; expected an implementation of {Launcher.__module__}:Launcher{hint}")
    return found


def _known() -> list[str]:
    """The launchers that ``conf/`` offers."""
    return [str(from_yaml(file.read_text())["class_name"]) for file in (CONF / "launcher").glob("*.yaml")]


def _exists(module: str) -> bool:
    """Whether there is such a module, as Python's import looks for it; but no package above it is imported."""
    name, path = "", None
    for part in module.split("."):
        name = f"{name}.{part}".lstrip(".")
        specs = (finder.find_spec(name, path) for finder in sys.meta_path)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None:
            return False
        path = spec.submodule_search_locations or ()  # nothing is in a module that is no package
    return True
