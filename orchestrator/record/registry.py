"""The champion of a study in MLflow's model registry: `models:/<study>@champion`."""

from orchestrator.record import model
from orchestrator.record.store import Store

ALIAS = "champion"


def name_champion(store: Store, run_id: str, name: str, why: str) -> bool:
    """Give the policy of a study's run the alias, as a new version of the model `name` unless it is one already.

    Returns whether it has it now: a run that kept no model can't be registered.
    """
    from mlflow.exceptions import MlflowException

    client = store.client
    if not any(file.path == model.NAME for file in client.list_artifacts(run_id)):
        return False
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    versions = [v for v in client.search_model_versions(f"name='{name}'") if v.run_id == run_id]
    version = versions[0] if versions else None
    if version is None:
        version = client.create_model_version(name, f"runs:/{run_id}/{model.NAME}", run_id, description=why)
    client.set_registered_model_alias(name, ALIAS, version.version)
    return True


def withdraw_champion(store: Store, study_run_id: str, name: str) -> str | None:
    """Take the alias from the model `name`, where a run of this study has it. Returns that run's name."""
    from mlflow.entities import ViewType

    for registered in store.client.search_registered_models(f"name='{name}'"):
        if ALIAS not in registered.aliases:
            continue
        version = store.client.get_model_version(name, registered.aliases[ALIAS])
        of_study = f"tags.`mlflow.parentRunId` = '{study_run_id}' and attributes.run_id = '{version.run_id}'"
        for run in store.client.search_runs([store.experiment_id], of_study, run_view_type=ViewType.ALL):
            store.client.delete_registered_model_alias(name, ALIAS)
            return str(run.info.run_name)
    return None
