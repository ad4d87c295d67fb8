"""What MLflow runs when it serves a policy: saved with the model as it stands, beside ``numpy_policy.py``."""

from typing import Any

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel


class ServedPolicy(PythonModel):
    """Observations (batch, width) to deterministic actions (batch, A)."""

    def load_context(self, context: Any) -> None:
        """Read the arrays."""
        from numpy_policy import NumpyPolicy  # type: ignore[import-not-found]  # it lies with the model

        self._policy = NumpyPolicy(context.artifacts["policy"])

    def predict(self, context: Any, model_input: np.ndarray, params: dict[str, Any] | None = None) -> np.ndarray:
        """The actions."""
        # MLflow reads the hint, knows no better one, and hands over {"obs": array} as the signature has it.
        actions: np.ndarray = self._policy(model_input["obs"])
        return actions


set_model(ServedPolicy())
