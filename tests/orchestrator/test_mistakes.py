"""A user's mistake: one clear line, exit code 2, and nothing on disk."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from navtask.stdout import UNREAD

Cli = Callable[..., tuple[int, str, str]]

SWEEP = "+sweep=reward_weights"

MISTAKES = {
    "unknown sweep": (["+sweep=reward_weight"], ["sweep=reward_weight", "did you mean 'reward_weights'?"]),
    "sweep without plus": (["sweep=ppo"], ["+sweep=ppo"]),
    "unknown experiment": (["experiment=smoky"], ["experiment=smoky", "did you mean 'smoke'?"]),
    "unknown task": (["task=nev"], ["task=nev", "did you mean 'nav'?"]),
    "unknown rooms": (["task/rooms=dens"], ["task/rooms=dens", "did you mean 'dense'?"]),
    "unknown group": (["tusk=nav"], ["tusk", "did you mean 'task'?"]),
    "unknown config dir": (["--config-dir", "/nowhere"], ["--config-dir /nowhere: there is no such folder"]),
    "no best there": (["--config-dir", "conf", "+best=config"], ["--config-dir conf: holds no best/config.yaml"]),
    "Hydra's sweep": (["-m", "+sweep=reward_weights"], ["--multirun", "+sweep=reward_weights"]),
    "typo in a key": (["algorithm.learning_rat=1"], ["algorithm.learning_rat=1", "'algorithm.learning_rate'?"]),
    "typo with a plus": (["+algorithm.learning_rat=1"], ["algorithm.learning_rat", "'learning_rate'?"]),
    "typo at the top": (["+sed=1"], ["sed", "did you mean 'seed'?"]),
    "wrong type": (["seed=abc"], ["seed=abc", "whole number"]),
    "wrong type of a flag": (["dry_run=perhaps"], ["dry_run=perhaps", "true or false"]),
    "wrong type in a list": (["policy.hidden_dims=[wide]"], ["policy.hidden_dims", "whole number"]),
    "malformed override": (["seed=["], ["seed=[", "key=value"]),
    "override without value": (["seed"], ["seed", "key=value"]),
    "sweep settings without sweep": (["+sweep.n_trials=3"], ["sweep.n_trials=3", "+sweep=<name>"]),
    "negative": (["num_envs=-1"], ["num_envs=-1", "expected 1 to 1,000,000"]),
    "negative learning rate": (["algorithm.learning_rate=-1"], ["algorithm.learning_rate=-1", "0 to 1"]),
    "not a number": (["algorithm.clip_param=nan"], ["algorithm.clip_param=nan", "finite"]),
    "more mini-batches than samples": (
        ["num_envs=4", "algorithm.num_mini_batches=1000"],
        ["algorithm.num_mini_batches=1000", "= 128"],
    ),
    "unknown schedule": (["algorithm.schedule=adaptiv"], ["did you mean 'adaptive'?"]),
    "unknown device": (["device=gpu"], ["device=gpu", "cuda"]),
    "unknown frozen set": (["evaluation.set=dens"], ["evaluation.set=dens", "did you mean 'dense'?"]),
    "reward term that doesn't exist": (["+task.rewards.gaol={weight: 1.0}"], ["gaol", "did you mean 'goal'?"]),
    "weight of a reward term that doesn't exist": (["+task.rewards.gaol.weight=1"], ["gaol", "did you mean"]),
    "observation that doesn't exist": (
        ["+task.observations.ladar={enabled: true}"],
        ["ladar", "did you mean 'lidar'?"],
    ),
    "parameter of a term that doesn't exist": (
        ["+task.rewards.near_obstacle.params.save_dist=1.0"],
        ["save_dist", "did you mean 'safe_dist'?"],
    ),
    "privileged actor": (["policy.obs_groups.actor=[policy,privileged]"], ["policy.obs_groups.actor", "real robot"]),
    "unknown observation group": (["policy.obs_groups.critic=[polcy]"], ["did you mean 'policy'?"]),
    "within what is null": (["task.rooms.automaton.cell=0.2"], ["task.rooms.automaton is null"]),
    "not an MLflow URI": (["tracking.uri=nonsense"], ["tracking.uri=nonsense"]),
    "not an MLflow URI either": (["tracking.uri=htp://host"], ["tracking.uri=htp://host"]),
    "a password with a quote": (["tracking.uri=http://ann:it's@host"], ["tracking.uri=... (not shown", "%27"]),
    "launcher that doesn't exist": (["launcher.class_name=a:B"], ["launcher.class_name=a:B: there is no module a"]),
    "a reward for novelty that isn't there": (
        ["algorithm.rnd.weight=1"],
        ["algorithm.rnd.weight=1", "algorithm/rnd=default"],
    ),
    "a reward for novelty that is none": (
        ["algorithm/rnd=default", "algorithm.rnd.weight=0"],
        ["algorithm.rnd.weight=0"],
    ),
    "novelty of what the task doesn't offer": (
        ["algorithm/rnd=default", "algorithm.rnd.obs_groups=[polcy]"],
        ["algorithm.rnd.obs_groups=polcy", "'policy'"],
    ),
    "processes that can't share the rooms": (["launcher.nproc_per_node=3"], ["launcher.nproc_per_node=3", "divisor"]),
    "more threads than cores": (["launcher.threads_per_job=999"], ["launcher.threads_per_job=999"]),
    "folder as a name": (["experiment_name=a/b"], ["experiment_name=a/b"]),
    "requirement on no metric": (["+require={Eval/succes_rate: 0.5}"], ["did you mean 'Eval/success_rate'?"]),
    "zero trials": ([SWEEP, "sweep.n_trials=0"], ["sweep.n_trials=0", "at least 1"]),
    "trials in words": ([SWEEP, "sweep.n_trials=many"], ["sweep.n_trials=many", "whole number"]),
    "setting of a sweep that doesn't exist": ([SWEEP, "sweep.n_trial=3"], ["did you mean 'sweep.n_trials'?"]),
    "space without plus": ([SWEEP, 'sweep.params={seed: "choice(1,2)"}'], ["with a plus: +sweep.params={seed"]),
    "path that doesn't exist": (
        [SWEEP, '+sweep.params={algorithm.gama: "interval(0.9, 0.99)"}'],
        ["algorithm.gama", "did you mean 'algorithm.gamma'?"],
    ),
    "reward weight that doesn't exist": (
        [SWEEP, '+sweep.params={task.rewards.gaol.weight: "interval(1, 2)"}'],
        ["did you mean 'task.rewards.goal.weight'?"],
    ),
    "interval the wrong way round": (
        [SWEEP, '+sweep.params={algorithm.gamma: "interval(0.99, 0.9)"}'],
        ["algorithm.gamma=interval(0.99, 0.9)", "0.99 must be below the upper bound 0.9"],
    ),
    "empty interval": ([SWEEP, '+sweep.params={algorithm.gamma: "interval(0.9, 0.9)"}'], ["must be below"]),
    "logarithm of nothing": (
        [SWEEP, '+sweep.params={algorithm.entropy_coef: "tag(log, interval(0, 1))"}'],
        ["logarithmic"],
    ),
    "no search at all": ([SWEEP, "+sweep.params={algorithm.gamma: 0.9}"], ["algorithm.gamma=0.9", "interval(a, b)"]),
    "malformed interval": (
        [SWEEP, '+sweep.params={algorithm.gamma: "interval(0.9"}'],
        ["algorithm.gamma=interval(0.9"],
    ),
    "fractions where there are none": (
        [SWEEP, '+sweep.params={algorithm.num_learning_epochs: "interval(2, 5)"}'],
        ["algorithm.num_learning_epochs", "int(interval("],
    ),
    "impossible value in a space": (
        [SWEEP, '+sweep.params={algorithm.gamma: "interval(0.9, 1.1)"}'],
        ["algorithm.gamma=interval(0.9, 1.1) allows algorithm.gamma=1.1"],
    ),
    "searching what trials are measured by": (
        [SWEEP, '+sweep.params={task.goal_radius: "interval(0.1, 1)"}'],
        ["task.goal_radius", "measured by"],
    ),
    "return as the objective of reward weights": (
        [SWEEP, "sweep.objective=Train/mean_reward"],
        ["sweep.objective=Train/mean_reward", "rewards that this sweep changes", "Eval/success_rate"],
    ),
    "reward term as their objective": (
        [SWEEP, "sweep.objective=Episode_Reward/goal"],
        ["sweep.objective=Episode_Reward/goal", "rewards that this sweep changes"],
    ),
    "metric that doesn't exist": (
        [SWEEP, "sweep.objective=Eval/sucess_rate"],
        ["sweep.objective=Eval/sucess_rate", "did you mean 'Eval/success_rate'?"],
    ),
    "no objective": ([SWEEP, "sweep.objective=null"], ["sweep.objective=null", "sweep.objectives"]),
    "one objective and several": (
        [SWEEP, "+sweep.objectives={Eval/spl: {direction: maximize, worst: 0}}"],
        ["sweep.objective=Eval/success_rate: expected null beside sweep.objectives"],
    ),
    "several objectives, one of them measured in training": (
        ["+sweep=pareto", "+sweep.objectives={Train/mean_reward: {direction: maximize, worst: 0}}"],
        ["sweep.objectives.Train/mean_reward", "rewards that this sweep changes"],
    ),
    "objective without its worst value": (
        ["+sweep=pareto", "+sweep.objectives={Eval/spl: {direction: maximize}}"],
        ["sweep.objectives.Eval/spl.worst", "a value is needed"],
    ),
    "direction of an objective": (
        ["+sweep=pareto", "+sweep.objectives={Eval/spl: {direction: up, worst: 0}}"],
        ["sweep.objectives.Eval/spl.direction=up", "maximize, minimize"],
    ),
    "pruning by several objectives": (
        ["+sweep=pareto", "sweep.pruner={_target_: optuna.pruners.MedianPruner}"],
        ["sweep.pruner", "several objectives"],
    ),
    "confirming a front": (["+sweep=pareto", "confirm.top_k=2"], ["confirm.top_k=2", "expected 0"]),
    "confirming with two seeds": ([SWEEP, "confirm.seeds=2"], ["confirm.seeds=2", "3 to 1000", "how seeds vary"]),
    "confirming less than nothing": ([SWEEP, "confirm.top_k=-1"], ["confirm.top_k=-1"]),
    "constraint on no metric": (
        [SWEEP, "+sweep.constraints={Eval/collison_rate: {max: 0.1}}"],
        ["sweep.constraints.Eval/collison_rate", "did you mean 'Eval/collision_rate'?"],
    ),
    "constraint without bounds": ([SWEEP, "+sweep.constraints={Eval/spl: {}}"], ["sweep.constraints.Eval/spl", "max"]),
    "constraint the wrong way round": (
        [SWEEP, "+sweep.constraints={Eval/spl: {min: 1, max: 0}}"],
        ["sweep.constraints.Eval/spl.min=1", "max=0"],
    ),
    "trials without a seed": ([SWEEP, "sweep.seeds_per_trial=0"], ["sweep.seeds_per_trial=0", "at least 1"]),
    "searching the seed": ([SWEEP, '+sweep.params={seed: "range(1, 9)"}'], ["sweep.params.seed", "luck"]),
    "direction": ([SWEEP, "sweep.direction=up"], ["sweep.direction=up", "maximize"]),
    "sampler that is none of Optuna's": (
        [SWEEP, "sweep.sampler={_target_: os.system}"],
        ["os.system", "optuna.samplers"],
    ),
    "sampler that doesn't exist": (
        [SWEEP, "sweep.sampler={_target_: optuna.samplers.TPESample}"],
        ["did you mean 'optuna.samplers.TPESampler'?"],
    ),
    "sampler with a setting that doesn't exist": (
        [SWEEP, "+sweep.sampler.startup=3"],
        ["startup"],
    ),
    "something else in a pruner": (
        [SWEEP, "sweep.pruner={_target_: optuna.pruners.PatientPruner, wrapped_pruner: {_target_: os.system}}"],
        ["os.system", "optuna.pruners"],
    ),
    "known good point outside the space": (
        [SWEEP, "sweep.enqueue=[{task.rewards.goal.weight: 1e6}]"],
        ["sweep.enqueue[0]", "task.rewards.goal.weight"],
    ),
    "known good point of something else": (
        [SWEEP, "sweep.enqueue=[{algorithm.gamma: 0.9}]"],
        ["sweep.enqueue[0]", "algorithm.gamma", "not searched"],
    ),
    "earlier study that doesn't exist": (
        [SWEEP, "sweep.warm_start=nothing"],
        ["sweep.warm_start=nothing", "no such study"],
    ),
    "space function that doesn't exist": ([SWEEP, "sweep.space=nowhere.function"], ["sweep.space=nowhere.function"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_one_line_exit_code_2_and_nothing_on_disk(name: str, cli: Cli, tmp_path: Path) -> None:
    arguments, expected = MISTAKES[name]
    code, out, err = cli(*arguments, f"output_dir={tmp_path / 'out'}")
    assert code == 2, (out, err)
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    for text in expected:
        assert text in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


WRONG_TYPES = (
    ["task=3"],
    ["task=[1,2]"],
    ["+task={a: 1}"],
    ["task.name=null"],
    ["task.rooms.size={a: 1}"],
    ["task.rooms.automaton={a: 1}"],
    ["+task.rewards.goal={a: 1}"],
    ["task.rewards.near_obstacle.params.safe_dist=abc"],
    ["physics=null"],
    ["physics.backend=[1,2]"],
    ["algorithm.gamma=1,2"],
    ["algorithm.rnd={a: 1}"],
    ["algorithm/rnd=3"],
    ["policy.hidden_dims={a: 1}"],
    ["+evaluation.frozen.x=3"],
    ["evaluation.frozen.open={a: 1}"],
    ["evaluation.frozen.barn.half_size={a: 1}"],
    ["evaluation.further_sets=open"],
    ["launcher.max_retries=null"],
    ["+launcher.max_retries=2"],
    ["tracking=null"],
    ["confirm=null"],
    ["require=3"],
    ["sweep={a: 1}"],
    ["+sweep=null"],
    [SWEEP, "sweep.sampler=[1,2]"],
    [SWEEP, "sweep.sampler.n_startup_trials=abc"],
    [SWEEP, "sweep.pruner=3"],
    [SWEEP, "sweep.enqueue={a: 1}"],
    [SWEEP, "+sweep.constraints.x=3"],
    ["+sweep=pareto", "+sweep.objectives.x=null"],
)


@pytest.mark.parametrize("arguments", WRONG_TYPES, ids=lambda arguments: arguments[-1])
def test_a_value_of_the_wrong_type_is_told_with_its_key(arguments: list[str], cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli(*arguments, f"output_dir={tmp_path / 'out'}")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert arguments[-1].lstrip("+").partition("=")[0].rpartition(".")[2] in err
    assert not any(
        inner in err for inner in ("NoneType", "Config'", "DictConfig", "Error merging", "subclass", "Dict[")
    )
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_in_a_file_is_told_with_its_name(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for text, told in (
        ("seed: [1, 2]", "mine/odd.yaml: seed=[1, 2]: expected a whole number"),
        ("algorithm: {learning_rat: 1}", "mine/odd.yaml: the config has no 'algorithm.learning_rat'; did you mean"),
        ("seed: [", "mine/odd.yaml, line 3: not YAML"),
    ):
        (tmp_path / "mine" / "odd.yaml").write_text(f"# @package _global_\n{text}\n")
        code, _, err = cli("--config-dir", str(tmp_path), "+mine=odd")
        assert (code, err.count("\n")) == (2, 1)
        assert told in err


def test_a_password_is_not_repeated(cli: Cli) -> None:
    code, _, err = cli("tracking.uri=postgrsql://me:secret@host/db")
    assert code == 2
    assert "secret" not in err


def test_from_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orchestrator", "seed=abc", f"output_dir={tmp_path}"]
    project = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=project, env=dict(os.environ), timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: seed=abc: expected a whole number\n"


@pytest.mark.parametrize("command", ["orchestrator --help", "orchestrator.report --help"])
def test_output_that_nobody_reads_is_no_error(command: str) -> None:
    """As in ``… | head -1``."""
    reading, writing = os.pipe()
    os.close(reading)
    project = Path(__file__).parents[2]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as people have it
    argv = [sys.executable, "-m", *command.split()]
    done = subprocess.run(argv, stdout=writing, stderr=subprocess.PIPE, cwd=project, env=env, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (UNREAD, b"")


def test_dry_run_says_what_would_be_run_and_starts_nothing(cli: Cli, tmp_path: Path) -> None:
    known = "sweep.enqueue=[{task.rewards.goal.weight: 20}, {task.rewards.goal.weight: 25}]"
    code, out, err = cli(SWEEP, "sweep.n_trials=2", known, "dry_run=true", f"output_dir={tmp_path / 'out'}")
    assert (code, err) == (0, "")
    assert "with today's config and 2 of sweep.enqueue; the last 1 of them are never tried: sweep.n_trials=2" in out
    for text in ("2 trials", "dense", "Eval/success_rate", "task.rewards.goal.weight", str(tmp_path / "out")):
        assert text in out
    assert list(tmp_path.iterdir()) == []


def test_dry_run_shows_what_is_outside_of_the_search_and_what_would_be_refused(cli: Cli, tmp_path: Path) -> None:
    own = (SWEEP, f"output_dir={tmp_path}", "dry_run=true", "task.rewards.progress.weight=0")
    (tmp_path / "reward_weights").mkdir()
    (tmp_path / "reward_weights" / "study.yaml").write_text("uid: x\npoints: []\nconfig: {seed: 3, sweep: {}}\n")
    code, out, err = cli(*own)
    assert (code, err) == (0, "")
    take_out = "+sweep.params={task.rewards.progress.weight: null}"
    assert out.splitlines()[-2] == (
        "task.rewards.progress.weight is searched over interval(0.5, 6): today's 0.0 is the baseline's alone; to keep "
        f"it for all: '{take_out}'"
    )
    assert out.splitlines()[-1].startswith(
        "without dry_run this would be refused: study 'reward_weights' was begun with another config: "
    )
    code, out, err = cli(*own, take_out)
    assert (code, err) == (0, "")
    assert "progress.weight" not in out.partition("this would be refused")[0]
    code, out, err = cli(*own, take_out, "dry_run=false")
    assert (code, out) == (2, "")
    assert "was begun with another config" in err


def test_hydras_own_switches_work(cli: Cli) -> None:
    code, out, _ = cli("--cfg", "job", "seed=7")
    assert code == 0
    assert "seed: 7" in out
    code, out, _ = cli("--help")
    assert code == 0
    assert "\ntask: nav, reach\n" in out
    assert "\nalgorithm/rnd: " in out
    assert "hydra/" not in out
