"""A finished trial's policy in MLflow's own format."""

import subprocess
import sys

import numpy as np
import pytest
from mlflow_fakes import runs

from navtask.numpy_policy import NumpyPolicy
from orchestrator.record.mlflow import Recorder


@pytest.fixture
def policy(tmp_path):
    """A ``policy.npz`` of 78 observations and 3 actions."""
    rng = np.random.default_rng(0)
    layers = {}
    for i, (inputs, outputs) in enumerate(((78, 16), (16, 3))):
        layers[f"weight_{i}"] = rng.normal(size=(outputs, inputs)).astype(np.float32)
        layers[f"bias_{i}"] = rng.normal(size=outputs).astype(np.float32)
    path = tmp_path / "o?x=1#y%41 z é'" / "policy.npz"  # what means something in a URI, too
    path.parent.mkdir()
    normaliser = {"mean": np.full(78, 0.1, np.float32), "std": np.full(78, 2.0, np.float32)}
    np.savez(path, **normaliser, **layers, activation="elu", output="mean", interface='{"task": "nav"}')
    return path


def test_is_loaded_and_gives_the_policys_actions(policy, uri, tmp_path, capfd):
    recorder = Recorder(uri, "nav")
    recorder.start_trial(0, policy.parent, "u")
    recorder.end_trial(0, "finished", policy=policy)
    assert recorder.close("finished", 60).unfinished == ()
    assert capfd.readouterr() == ("", "")  # the terminal is the table's

    observations = np.random.default_rng(1).normal(size=(20, 78)).astype(np.float32)
    np.save(tmp_path / "observations.npy", observations)
    run_id = runs(uri)["u"].info.run_id
    script = (
        "import mlflow, numpy, sys\n"
        "mlflow.set_tracking_uri(sys.argv[1])\n"
        "model = mlflow.pyfunc.load_model(f'runs:/{sys.argv[2]}/model')\n"
        "numpy.save('actions.npy', model.predict(numpy.load('observations.npy')))\n"
        "assert 'torch' not in sys.modules\n"
        "told = model.metadata\n"
        "assert told.metadata == {'interface': {'task': 'nav'}}\n"
        "assert [(spec.name, spec.shape) for spec in told.signature.inputs] == [('obs', (-1, 78))]\n"
        "assert [(spec.name, spec.shape) for spec in told.signature.outputs] == [('actions', (-1, 3))]\n"
        "try: model.predict(numpy.zeros((1, 76), numpy.float32))\n"
        "except mlflow.MlflowException: print('refused')\n"
    )
    command = [sys.executable, "-c", script, uri, run_id]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "refused", done.stderr
    assert "Warning" not in done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "actions.npy"), NumpyPolicy(policy)(observations), atol=1e-6)


def test_no_policy_no_model(uri, tmp_path):
    recorder = Recorder(uri, "nav")
    recorder.start_trial(0, tmp_path / "t", "u")
    recorder.end_trial(0, "finished", policy=tmp_path / "t" / "policy.npz")
    assert recorder.close("finished", 60).unfinished == ()
    assert runs(uri)["u"].info.status == "FINISHED"
