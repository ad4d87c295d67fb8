"""One table for learned policies and planners: it shows what the training measured, and mistakes cost one line."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import harness
import pytest
import torch
import yaml
from mlflow import MlflowClient

from navtask import tasks
from navtask.evaluation import Estimate
from navtask.nav.env import NavEnv
from orchestrator import command, evaluate
from orchestrator.config import PROJECT
from orchestrator.errors import UserError
from orchestrator.job import checkpoint, spec
from orchestrator.job.runner import build_actor

ROOMS = 12


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, trained and recorded as a user's: its folder and the store that it is recorded in."""
    place = tmp_path_factory.mktemp("trained")
    overrides = (
        "num_envs=16",
        "algorithm.num_steps_per_env=16",
        "algorithm.iterations=4",
        "algorithm.checkpoint_every=2",
        "evaluation.every=2",
        f"evaluation.num_rooms={ROOMS}",
        "evaluation.further_sets=[barn]",
        "policy.hidden_dims=[16,16]",
        "device=cpu",
        f"output_dir={place}",
        f"tracking.uri=sqlite:///{place}/mlflow.db",
    )
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *overrides], cwd=PROJECT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "nav" / "trial_0000", f"sqlite:///{place}/mlflow.db"


@pytest.fixture
def run(capsys):
    """``python -m orchestrator.evaluate <arguments>`` in this process: exit code, stdout, stderr."""

    def call(*arguments):
        capsys.readouterr()
        code = command.run(evaluate.run, "", [str(argument) for argument in arguments])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


@pytest.fixture
def judged(run):
    """The same, of policies: name -> metric -> estimate."""

    def call(*arguments):
        code, out, err = run(*arguments, "--json")
        assert code == 0, err
        found = json.loads(out)
        return {entry["policy"]: entry["metrics"] for entry in found["policies"]}

    return call


def last_metrics(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return json.loads(lines[-1])["metrics"]


@pytest.mark.parametrize(("name", "prefix"), [("open", "Eval"), ("barn", "Eval_barn")])
def test_a_run_is_worth_what_its_training_said(trained, judged, name, prefix):
    folder, _ = trained
    measured = last_metrics(folder)
    (metrics,) = judged(f"run={folder}", f"set={name}").values()
    assert len(metrics) == 11
    for metric, estimate in metrics.items():
        assert estimate["value"] == measured.get(f"{prefix}/{metric}"), "null where there is no number"
        assert estimate["low"] == measured.get(f"{prefix}/{metric}_low")


def test_set_and_number_of_rooms_are_the_runs_unless_told(trained, run):
    folder, _ = trained
    hashes = json.loads((folder / "eval.json").read_text())["sets"]
    found = json.loads(run(f"run={folder}", "--json")[1])
    assert (found["task"], found["set"], found["rooms"]) == ("nav", "open", ROOMS)
    assert found["policies"][0]["set_hash"] == hashes["open"]["set_hash"]
    fewer = json.loads(run(f"run={folder}", "rooms=5", "set=dense", "--json")[1])
    assert (fewer["set"], fewer["rooms"]) == ("dense", 5)
    assert fewer["policies"][0]["set_hash"] != hashes["open"]["set_hash"]


def test_mlflow_holds_the_same_policy(trained, judged):
    folder, uri = trained
    client = MlflowClient(tracking_uri=uri)
    (recorded,) = client.search_runs(["1"])
    trial, result = (json.loads((trained[0] / name).read_text()) for name in ("trial.json", "result.json"))
    assert [recorded.info.start_time, recorded.info.end_time] == [
        round(seconds * 1000) for seconds in (trial["started"], result["ended"])
    ]
    assert result["ended"] - trial["started"] > result["train_seconds"]
    kept = {file.path for file in client.list_artifacts(recorded.info.run_id)}
    assert {"policy.npz", "policy.onnx", "model", "config.yaml"} <= kept
    # MLflow's comparison of runs opens on the first of their metrics.
    assert next(iter(recorded.data.metrics)) in {"Eval/success_rate", "Episode_Termination/success"}
    (by_folder,) = judged(f"run={folder}").values()
    by_id = judged(f"run={recorded.info.run_id}", f"tracking.uri={uri}")
    assert [name.split(" (")[1] for name in by_id] == [f"{recorded.info.run_id[:8]})"]
    for metric, estimate in next(iter(by_id.values())).items():
        if estimate["value"] is not None:
            # Actions differ by rounding, and so does all that follows.
            assert estimate["value"] == pytest.approx(by_folder[metric]["value"], abs=1e-3)


def test_any_checkpoint_can_be_judged(trained, judged):
    folder, _ = trained
    paths = sorted((folder / "checkpoints").iterdir())
    assert [path.name for path in paths] == ["model_000002.pt", "model_000004.pt"]
    by_path = judged(f"run={paths[0]}", f"run={paths[1]}", f"run={folder}")
    first, second, newest = by_path.values()
    assert first != second
    assert second == newest


def test_the_actor_of_a_checkpoint_acts_as_the_exported_policy(trained):
    from navtask.numpy_policy import NumpyPolicy

    folder, _ = trained
    config, state = spec.read(folder).config, checkpoint.latest(folder)
    observation = NavEnv(config.task, num_envs=50, seed=3).get_observations()
    actor = build_actor(config.policy, observation, 3)
    actor.load_state_dict(state["algorithm"]["actor_state_dict"])
    ours = actor.eval()(observation).detach()
    theirs = torch.from_numpy(NumpyPolicy(folder / "policy.npz")(observation["policy"].numpy()))
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_learned_and_classical_stand_in_one_table(trained, run):
    folder, _ = trained
    code, out, err = run(f"run={folder}", "policy=straight", "policy=dynamic_window", "set=dense", "rooms=15")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("15 rooms of 'dense' (")
    assert lines[2].split() == ["policy", *tasks.get("nav").metrics]
    assert [line.split("  ")[0] for line in lines[3::2]] == [f"{folder} @4", "straight", "dynamic_window"]
    for line in lines[4::2]:
        assert line.count("[") >= 9, "every value has its interval, but for what no success was there to measure"
    rates = {line.split("  ")[0]: [float(x) for x in line.split()[-11:-8]] for line in lines[5::2]}
    for success, collision, timeout in rates.values():
        assert success + collision + timeout == pytest.approx(1, abs=2e-3)
    assert rates["dynamic_window"][0] > rates["straight"][0]
    assert len({len(line) for line in lines[2:]}) == 1, "columns are aligned"


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_has_fewer_columns_and_says_so(width):
    names = list(tasks.get("nav").metrics)
    metrics = {name: Estimate(0.5, 0.45, 0.55) for name in names}
    results = [evaluate.Result(name, "abc", 0.0, metrics) for name in ("straight", "a/long/path/to/a/trial_0000 @120")]
    lines = evaluate.table(results, "open", 1000, width)
    table = lines[2:7]
    assert max(map(len, table)) <= width
    shown = table[0].split()[1:]
    assert shown == names[: len(shown)]
    assert len(shown) >= 2
    assert table[3].split("  ")[0].endswith("trial_0000 @120")
    assert lines[8] == f"no room for {', '.join(names[len(shown) :])}: take a wider terminal, --json, or a file"
    assert len(evaluate.table(results, "open", 1000)[2]) > 120  # as it is where it isn't for a terminal
    nothing = evaluate.Result("straight", "abc", 0.0, {names[0]: Estimate(-0.0, -1e-9, -0.0)})
    assert [line.split("  ")[-1].strip() for line in evaluate.table([nothing], "open", 10)[3:]] == [
        "0.000",
        "[0.000, 0.000]",
    ]


@pytest.mark.parametrize("task", tasks.names())
def test_every_planner_of_a_task_drives(task, judged):
    planners = list(tasks.get(task).planners)
    found = judged(f"task={task}", *(f"policy={name}" for name in planners), "rooms=10")
    assert list(found) == planners
    assert max(metrics["success_rate"]["value"] for metrics in found.values()) >= 0.9


def test_a_set_that_a_run_does_not_know_is_todays(trained, tmp_path, run, judged):
    folder, _ = trained
    older = tmp_path / "older"
    shutil.copytree(folder, older)
    config = yaml.safe_load((older / "config.yaml").read_text())
    config["evaluation"]["further_sets"] = []
    own = config["evaluation"]["frozen"].pop("barn")
    (older / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    assert list(judged(f"run={older}", "set=barn").values()) == list(judged(f"run={folder}", "set=barn").values())
    # A set of its own comes first: these are then not the same rooms, and the table says so.
    config["evaluation"]["frozen"]["barn"] = own | {"margin": 0.2}
    (older / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    code, out, _ = run(f"run={folder}", f"run={older}", "set=barn", "rooms=5")
    assert code == 0
    assert f"not the same rooms: {older} @4 drove in " in out


def test_what_metrics_mean(run):
    for name in tasks.names():
        code, out, _ = run("--metrics", f"task={name}")
        assert code == 0
        assert [line.split()[0] for line in out.splitlines()] == list(tasks.get(name).metrics)
        assert "arXiv:1807.06757" in out, "sources are named"


MISTAKES = [
    ([], "nothing to evaluate: expected run="),
    (["set=open"], "nothing to evaluate: expected run="),
    (["policy=strait"], "policy=strait: expected a planner of the task nav; did you mean 'straight'?"),
    (["policy=straight", "task=reach"], "policy=straight: expected a planner of the task reach; known: resolved_rate"),
    (["policy=straight", "set=dens"], "set=dens: no such frozen set; did you mean 'dense'?"),
    (["policy=straight", "rooms=0"], "rooms=0: expected a whole number, 1 to 100,000"),
    (["policy=straight", "rooms=many"], "rooms=many: expected a whole number"),
    (["policy=straight", "set=open", "set=dense"], "set=dense: given twice"),
    (["policy=straight", "task=navi"], "task=navi: no such task; did you mean 'nav'?"),
    (["policy=straight", "device=gpu"], "device=gpu: expected "),
    (["policies=straight"], "policies=straight: no such key; did you mean 'policy'?"),
    (["straight"], "straight: expected key=value"),
    (["--jsn"], "--jsn: no such option; did you mean '--json'?"),
    (["run=no/such/folder"], "run=no/such/folder: no such folder"),
    (["run=0123abcd", "tracking.uri=sqlite:///no/such.db"], "such.db: no such file"),
    (["run=0123abcd", "tracking.uri=nonsense"], "MLflow"),
]


@pytest.mark.parametrize(("arguments", "told"), MISTAKES, ids=lambda value: " ".join(value)[:40])
def test_mistakes_cost_one_line_and_code_2(run, arguments, told):
    code, out, err = run(*arguments)
    assert code == 2
    assert not out
    assert err.startswith("error: ")
    assert told in err
    assert err.count("\n") == 1


def test_runs_that_are_none(trained, tmp_path, run):
    folder, uri = trained
    begun = tmp_path / "begun"
    shutil.copytree(folder, begun, ignore=shutil.ignore_patterns("checkpoints"))
    foreign = tmp_path / "checkpoint" / "checkpoints" / "model_000001.pt"
    shutil.copytree(folder, foreign.parents[1], ignore=shutil.ignore_patterns("checkpoints"))
    foreign.parent.mkdir()
    foreign.write_text("no checkpoint")
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    config = yaml.safe_load((other / "config.yaml").read_text())
    config["policy"]["hidden_dims"] = [8]
    (other / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    for arguments, told in (
        ([f"run={tmp_path}"], f"{tmp_path}: no trial here"),
        ([f"run={begun}"], f"run={begun}: no checkpoint that could be read"),
        (
            [f"run={folder / 'policy.onnx'}"],
            f"expected the folder of a trial, found a file; did you mean run={folder}?",
        ),
        ([f"run={folder.parent}"], f"a folder of trainings, expected one of its trainings: {folder}"),
        ([f"run={folder.parent / 'trial_0001'}"], f"no such folder: {folder.parent} has no 'trial_0001'; did you mean"),
        ([f"run={foreign}"], f"run={foreign}: not a checkpoint"),
        ([f"run={other}"], "its checkpoint does not fit its config"),
        (["run=0123abcd", f"tracking.uri={uri}"], "run=0123abcd: neither a folder nor a run in sqlite:///"),
        ([f"run={folder}", "task=reach"], "its task is nav, not reach"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert told in err
        assert err.count("\n") == 1


def test_a_mistake_does_not_wait_for_what_takes_seconds_to_import():
    """No command imports torch, MLflow or Optuna before it has looked at its arguments."""
    script = (
        "import sys; from orchestrator import command; from orchestrator.{} import {} as run\n"
        "code = command.run(run, '', ['rnu=x'])\n"
        "print(code, *{{'torch', 'mlflow', 'optuna', 'matplotlib'}} & {{*sys.modules}})"
    )
    for name in ("evaluate run", "rerun rerun", "diagnose run", "report.__main__ report"):
        done = subprocess.run(
            [sys.executable, "-c", script.format(*name.split())], cwd=PROJECT, capture_output=True, text=True
        )
        assert done.stdout == "2\n", name
        assert done.stderr.startswith("error: rnu=x: no such key")


def test_as_a_command_it_prints_json_and_nothing_else(trained):
    folder, _ = trained
    arguments = [sys.executable, "-m", "orchestrator.evaluate", f"run={folder}", "rooms=3", "--json"]
    done = subprocess.run(arguments, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0
    assert json.loads(done.stdout)["rooms"] == 3
    assert Path(folder).exists()


def test_an_engine_that_the_device_does_not_have_is_told(tmp_path):
    config = harness.configure(tmp_path, "physics=mujoco_c", "device=cpu")
    evaluate.check_engine(evaluate.Contestant("mine", config, None), "cpu")
    with pytest.raises(UserError, match=r"^device=cuda: mine drives in mujoco_c; expected device=cpu$"):
        evaluate.check_engine(evaluate.Contestant("mine", config, None), "cuda")
