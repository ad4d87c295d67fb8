"""One MLflow run, brought to what the driver wants of it, as often as it takes.

Every step may be repeated: after an error, after a call whose answer got lost, by another process after a kill. A run
is found again by the tag `UID`; a batch sent twice is one set of points, since the log's own times are sent; and what a
run holds already is asked of MLflow itself, not remembered elsewhere.

A job that went back to a checkpoint writes steps again that may have been shipped before. They are not shipped twice:
on a CPU they are the same but for times and `Perf/`, and MLflow can't take a point back.
"""

import functools
import getpass
import math
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from orchestrator.record import fields, model, registry, wal
from orchestrator.record.redact import redact
from orchestrator.record.store import Store

Outcome = Literal["finished", "pruned", "failed", "interrupted"]

UID = "orchestrator.uid"
OUTCOME = "outcome"
INTERRUPTED = "interrupted"
NON_FINITE = "nonfinite_metrics"
POSITION = "Train/env_steps"
"""The metric that every record holds: its largest step in MLflow is how far a run has been shipped."""

_FIRST = ("Eval/success_rate", "Episode_Termination/success")
"""Sent before a batch's other metrics: MLflow's comparison of runs opens on the one that it was told of first."""

_STATUS = {"finished": "FINISHED", "pruned": "KILLED", "failed": "FAILED", "interrupted": "KILLED"}
_TEXT = {".yaml", ".yml", ".json", ".md", ".txt", ".log"}


class ParentMissingError(Exception):
    """A trial can't be recorded, since its sweep was refused."""

    error_code = "RESOURCE_DOES_NOT_EXIST"


@dataclass(frozen=True)
class Champion:
    """A run whose policy is to be a version of a registered model, with the alias ``champion``."""

    run: "ShippedRun"
    model: str
    why: str


@dataclass(frozen=True)
class Update:
    """Something that the driver wants of a run. Applying it again changes nothing."""

    tags: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    searched: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Sequence[Path] = ()
    policy: Path | None = None
    """A ``policy.npz``, to be kept as a model in MLflow's format as well."""
    metrics: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Name -> step -> value, beside what a log brings."""
    champion: Champion | None = None
    no_champion: str | None = None
    """A registered model that none of this study's runs is the champion of, whatever was said before."""
    outcome: Outcome | None = None
    """None: the run is live."""
    ended: float | None = None
    """When that was, seconds since 1970; with an outcome only."""


class ShippedRun:
    """One run. `update` may be called from any thread, `sync` from one.

    It goes from unknown to live to ended; an update without an outcome makes an ended run live again. The status is set
    last, so a run that isn't RUNNING is complete, unless it carries the tag `interrupted`.
    """

    def __init__(
        self,
        uid: str,
        name: str,
        parent: "ShippedRun | None" = None,
        log: Path | None = None,
        started: float | None = None,
    ) -> None:
        """`log` is the metrics log to follow; a sweep's run has none. `started`: seconds since 1970; None is now."""
        if not uid or set(uid) & set("'\"`\\"):
            raise ValueError(f"uid {uid!r}: must be a text without quotes")
        self.uid = uid
        self.name = name
        self._started = started or time.time()
        self.run_id: str | None = None
        self.points = 0
        """Points shipped by this process."""
        self.has_champion = False
        """Whether one of its trials' policies is the registered champion."""
        self.withdrawn: str | None = None
        """Name of the run of this study that is no longer the champion."""
        self._parent = parent
        self._tail = wal.Tail(log) if log else None
        self._pending: list[wal.Record] = []
        self._updates: deque[Update] = deque()
        self._running = False
        self._found: Any = None
        self._held: int | None = None
        self._held_params: set[str] = set()
        self._non_finite = 0
        self._non_finite_told = 0

    def update(self, update: Update) -> None:
        """Ask for something; `sync` does it."""
        self._updates.append(update)

    @property
    def settled(self) -> bool:
        """Whether the run has ended and MLflow has all of it."""
        return not self._updates and self.run_id is not None and not self._running and not self._pending

    @property
    def ending(self) -> bool:
        """Whether the run has ended, or will once what is asked for is done."""
        updates = list(self._updates)
        return updates[-1].outcome is not None if updates else self.settled

    @property
    def follows(self) -> bool:
        """Whether there is a log that may bring more without being asked for."""
        return self._tail is not None and not self.settled

    @property
    def waiting(self) -> bool:
        """Whether something is asked for that isn't done."""
        return bool(self._updates)

    def sync(self, store: Store) -> None:
        """Do all that is asked for, and ship what the log has gained. Raises what MLflow raises; call again then."""
        if self.run_id is None:
            self._find_or_create(store)
        while self._updates:
            self._apply(store, self._updates[0])
            self._updates.popleft()
        if self._running:
            self._ship(store)

    def _find_or_create(self, store: Store) -> None:
        found = store.client.search_runs(
            [store.experiment_id], f"tags.`{UID}` = '{self.uid}'", order_by=["attributes.start_time ASC"], max_results=1
        )
        if found:
            run = found[0]
            outcome = run.data.tags.get(OUTCOME)
            if run.info.status != "RUNNING" and outcome != "interrupted":
                self._drop_until(outcome, run.data.tags)
            self._held_params = set(run.data.params)
            self._running = run.info.status == "RUNNING"
            self._found = run
        else:
            tags = {UID: self.uid, "mlflow.source.name": "orchestrator", "mlflow.user": _user()}
            if self._parent is not None:
                if self._parent.run_id is None:
                    raise ParentMissingError(f"{self._parent.name} could not be recorded")
                tags["mlflow.parentRunId"] = self._parent.run_id
            started = _milliseconds(self._started)
            run = store.client.create_run(store.experiment_id, start_time=started, tags=tags, run_name=self.name)
            self._running = True
        self.run_id = run.info.run_id

    def _apply(self, store: Store, update: Update) -> None:
        client, run_id = store.client, _known(self.run_id)
        if not self._running:
            client.update_run(run_id, status="RUNNING")
            self._running = True
            for tag in (INTERRUPTED, OUTCOME):
                if tag in client.get_run(run_id).data.tags:
                    client.delete_tag(run_id, tag)
        tags = fields.tags(update.tags)
        if update.outcome:
            self._ship(store)
            tags[OUTCOME] = update.outcome
            if update.outcome == "interrupted":
                tags[INTERRUPTED] = "true"
        self._log_fields(store, fields.params(update.config, update.searched), tags)
        for path in update.artifacts:
            _log_artifact(client, run_id, path)
        if update.policy is not None and update.policy.is_file():
            _log_model(client, run_id, update.policy)
        self._log_metrics(store, update.metrics)
        if update.champion is not None:
            update.champion.run.sync(store)
            winner, name, why = _known(update.champion.run.run_id), update.champion.model, update.champion.why
            self.has_champion = registry.name_champion(store, winner, name, why)
            if not self.has_champion:  # what is served as the champion is the winner's policy, or nothing
                self.withdrawn = registry.withdraw_champion(store, run_id, name) or self.withdrawn
        if update.no_champion is not None:
            self.withdrawn = registry.withdraw_champion(store, run_id, update.no_champion) or self.withdrawn
        if update.outcome:
            client.set_terminated(run_id, _STATUS[update.outcome], _milliseconds(update.ended or time.time()))
            self._running = False
            if self._tail is not None:
                self._tail.close()

    def _drop_until(self, outcome: str | None, held: Mapping[str, str]) -> None:
        """Drop the updates up to the outcome that the run has in MLflow: an earlier process completed them.

        What a search came to stays, where it has come to something else since.
        """
        updates = list(self._updates)
        last = next((i for i, update in enumerate(updates) if outcome and update.outcome == outcome), None)
        if last is None:
            return
        for _ in range(last + 1):
            self._updates.popleft()
        findings = [update for update in updates[:last] if update.metrics or update.champion or update.no_champion]
        if any(fields.tags(update.tags).items() - held.items() for update in findings):
            self._updates.extendleft([updates[last], *reversed(findings)])

    def _log_fields(self, store: Store, params: dict[str, str], tags: dict[str, str]) -> None:
        from mlflow.entities import Param, RunTag

        new = [Param(key, value) for key, value in params.items() if key not in self._held_params]
        labels = [RunTag(key, value) for key, value in tags.items()]
        size = fields.BATCH_FIELDS
        for start in range(0, max(len(new), len(labels)), size):
            part = new[start : start + size]
            store.client.log_batch(_known(self.run_id), params=part, tags=labels[start : start + size])
            self._held_params.update(param.key for param in part)

    def _log_metrics(self, store: Store, metrics: Mapping[str, Mapping[int, float]]) -> None:
        """Log what MLflow doesn't hold yet, or holds otherwise."""
        from mlflow.entities import Metric

        now = _milliseconds(time.time())
        new = []
        for name, by_step in ((fields.legal_key(name), by_step) for name, by_step in metrics.items()):
            held = {point.step: point.value for point in store.client.get_metric_history(_known(self.run_id), name)}
            finite = ((step, value) for step, value in by_step.items() if math.isfinite(value))
            new += [Metric(name, value, now, step) for step, value in finite if held.get(step) != value]
        for start in range(0, len(new), fields.BATCH_METRICS):
            store.client.log_batch(_known(self.run_id), metrics=new[start : start + fields.BATCH_METRICS])

    def _ship(self, store: Store) -> None:
        """Send what the log has gained, in batches of whole records: all of a step is in MLflow, or nothing of it."""
        if self._tail is None:
            return
        if (
            self._found is not None
        ):  # asked only when there is something to ship: most runs of an old study are complete
            self._held = _position(store, self._found)
            self._found = None
        if self._pending:  # of an earlier try; what came since is read after that, so an outage costs no memory
            self._send(store)
        for record in self._tail.read():
            self._non_finite += sum(not math.isfinite(value) for value in record.metrics.values())
            if self._held is None or record.step > self._held:
                self._pending.append(record)
        self._send(store)
        if self._non_finite > self._non_finite_told:
            store.client.set_tag(_known(self.run_id), NON_FINITE, str(self._non_finite))
            self._non_finite_told = self._non_finite

    def _send(self, store: Store) -> None:
        from mlflow.entities import Metric

        while self._pending:
            batch: list[Any] = []
            steps = 0
            for record in self._pending:
                points = _points(record)
                if batch and len(batch) + len(points) > fields.BATCH_METRICS:
                    break
                milliseconds = _milliseconds(record.time)
                batch += [Metric(name, value, milliseconds, record.step) for name, value in points]
                steps += 1
            batch.sort(key=lambda metric: metric.key not in _FIRST)
            store.client.log_batch(_known(self.run_id), metrics=batch)
            self.points += len(batch)
            del self._pending[:steps]


_legal = functools.cache(fields.legal_key)


def _points(record: wal.Record) -> list[tuple[str, float]]:
    """Return the finite values of a record by legal names; the one that marks the position is last."""
    points = [(_legal(name), v) for name, v in record.metrics.items() if name != POSITION and math.isfinite(v)]
    position = record.metrics.get(POSITION, math.nan)
    return [*points, (POSITION, position)] if math.isfinite(position) else points


def _position(store: Store, run: Any) -> int | None:
    """Return the largest step that MLflow holds of a run, None where it holds none."""
    names = [POSITION] if POSITION in run.data.metrics else list(run.data.metrics)
    steps = [point.step for name in names for point in store.client.get_metric_history(run.info.run_id, name)]
    return max(steps, default=None)


def _log_artifact(client: Any, run_id: str, path: Path) -> None:
    """Upload a file, a text without the credentials in it. A missing one is left out: not every job gets so far."""
    if not path.is_file():
        return
    if path.suffix in _TEXT:
        text = path.read_text(errors="replace")
        if (clean := redact(text)) != text:
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(folder) / path.name
                copy.write_text(clean)
                client.log_artifact(run_id, str(copy))
            return
    client.log_artifact(run_id, str(path))


def _log_model(client: Any, run_id: str, policy: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / model.NAME
        model.save(policy, saved)
        client.log_artifacts(run_id, str(saved), model.NAME)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user id, as in some containers
        return "unknown"


def _known(run_id: str | None) -> str:
    if run_id is None:
        raise RuntimeError("the run is not open yet")
    return run_id
