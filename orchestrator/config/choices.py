"""What there is to choose from: ``task=nav`` chooses a file of the folder ``conf/task``."""

from collections.abc import Iterator

from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType

SCHEMA = "_schema"
"""What ends the name of a schema: Hydra keeps it beside the files that it is for, but nobody chooses it."""


def choices_of(group: str) -> list[str]:
    """The files and folders of a folder of ``conf/``, and of ``--config-dir``. Hydra is initialised."""
    options: list[str] = GlobalHydra.instance().config_loader().get_group_options(group)
    return [option for option in options if not option.endswith(SCHEMA)]


def listed() -> str:
    """All of them, a line for each folder, as ``--help`` shows them."""
    return "\n".join(f"{group}: {', '.join(sorted(choices_of(group)))}" for group in sorted(_groups("")))


def _groups(parent: str) -> Iterator[str]:
    loader = GlobalHydra.instance().config_loader()
    for name in loader.list_groups(parent):
        group = f"{parent}/{name}" if parent else name
        if group == "hydra":
            continue
        if loader.get_group_options(group, ObjectType.CONFIG):
            yield group
        yield from _groups(group)
