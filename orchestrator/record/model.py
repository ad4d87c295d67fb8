"""A trial's policy in MLflow's own format: for `mlflow.pyfunc.load_model` and `mlflow models serve`.

It has a signature, and its interface (see `navtask.interface`) as metadata. It needs NumPy alone, and carries its code
with it: whoever loads it needs neither this project nor torch.
"""

import warnings
from pathlib import Path

import numpy as np

import navtask.numpy_policy
from navtask.numpy_policy import NumpyPolicy

NAME = "model"
"""Its folder among a run's artifacts."""

_SERVED = Path(__file__).with_name("served_policy.py")


def save(policy: Path, into: Path) -> None:
    """Write the model of a ``policy.npz`` into a new folder. Raises what MLflow raises."""
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    loaded = NumpyPolicy(policy)
    number = np.dtype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it asks for an example of what the signature says
        mlflow.pyfunc.save_model(
            str(into),
            python_model=str(_SERVED),
            code_paths=[navtask.numpy_policy.__file__],
            artifacts={"policy": policy.absolute().as_uri()},  # of a path MLflow would make one without quoting it
            signature=ModelSignature(
                inputs=Schema([TensorSpec(number, (-1, loaded.width), "obs")]),
                outputs=Schema([TensorSpec(number, (-1, loaded.num_actions), "actions")]),
            ),
            metadata={} if loaded.interface is None else {"interface": loaded.interface},
            pip_requirements=[f"numpy=={np.__version__}"],
        )
