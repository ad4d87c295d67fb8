"""A launcher that can't be had costs one line, and nothing is imported for it."""

import sys
from pathlib import Path

import harness
import pytest

from orchestrator import plan
from orchestrator.config import LauncherConfig
from orchestrator.errors import UserError
from orchestrator.launch.loading import load
from orchestrator.launch.local import LocalLauncher

OURS = "orchestrator.launch.local:LocalLauncher"
KNOWN, MEANT = f"; known: {OURS}", f"; did you mean '{OURS}'?"
EXPECTED = "expected an implementation of orchestrator.launch.base:Launcher"


@pytest.mark.parametrize(
    ("name", "told", "hint"),
    [
        ("nonsense", "expected pkg.mod:Class", KNOWN),
        ("", "expected pkg.mod:Class", KNOWN),
        ("orchestrator.launch.local", "expected pkg.mod:Class", MEANT),
        ("orchestrator.launch.local:Local Launcher", "expected pkg.mod:Class", MEANT),
        ("nowhere:Launcher", "there is no module nowhere", KNOWN),
        ("orchestrator.launch.locl:LocalLauncher", "there is no module orchestrator.launch.locl", MEANT),
        ("orchestrator.launch.local.x:LocalLauncher", "there is no module orchestrator.launch.local.x", MEANT),
        ("orchestrator.launch.local:LocalLaucher", f"there is no such class; {EXPECTED}", MEANT),
        ("pathlib:Path", f"not a launcher; {EXPECTED}", KNOWN),
        ("orchestrator.launch.base:Launcher", f"not a launcher; {EXPECTED}", MEANT),
    ],
)
def test_a_name_of_no_launcher(name: str, told: str, hint: str) -> None:
    with pytest.raises(UserError) as error:
        load(LauncherConfig(class_name=name))
    assert str(error.value) == f"launcher.class_name={name}: {told}{hint}"


def test_the_class_itself() -> None:
    assert load(LauncherConfig(class_name=OURS)) is LocalLauncher


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose import leaves a trace, and fails."""
    package = tmp_path / "my_launchers"
    package.mkdir()
    (package / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    (package / "broken.py").write_text("import a_package_that_is_not_installed\n")
    (package / "wrong.py").write_text("raise ZeroDivisionError('one\\ntwo')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_launchers", raising=False)
    return tmp_path / "imported"


def test_what_does_not_exist_is_not_looked_for_by_importing(mine: Path) -> None:
    with pytest.raises(UserError, match=r"there is no module my_launchers\.ray"):
        load(LauncherConfig(class_name="my_launchers.ray:RayLauncher"))
    assert not mine.exists()


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("broken", "ModuleNotFoundError: No module named 'a_package_that_is_not_installed'"),
        ("wrong", "ZeroDivisionError: one two"),
    ],
)
def test_a_module_that_fails_to_import_is_told(mine: Path, module: str, told: str) -> None:
    with pytest.raises(UserError) as error:
        load(LauncherConfig(class_name=f"my_launchers.{module}:Mine"))
    expected = f"launcher.class_name=my_launchers.{module}:Mine: my_launchers.{module} can't be imported ({told})"
    assert str(error.value) == expected


def test_any_other_mistake_is_told_before_a_launcher_is_imported(mine: Path, tmp_path: Path) -> None:
    config = harness.configure(
        tmp_path, *harness.SWEEP, "launcher.class_name=my_launchers.wrong:Mine", "sweep.warm_start=nothing"
    )
    with pytest.raises(UserError, match=r"sweep\.warm_start=nothing: no such study"):
        plan.make(config)
    assert not mine.exists()
