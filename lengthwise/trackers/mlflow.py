"""MLflow: a file mlflow.db (SQLite) in the folder, or the store that MLFLOW_TRACKING_URI names."""

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lengthwise.records.directory import make_folder
from lengthwise.trackers.following import BY_LENGTH
from lengthwise.trackers.tracker import Curves, TrackedRun, Tracker, package

IDENTITY = "lengthwise.identity"
"""A tag of every run."""
MOST = 1000
"""Metrics in one message of MLflow, parameters 100."""


class MLflow(Tracker):
    """MLflow: a database file, or a server."""

    name = "mlflow"

    def __init__(self, folder: Path, project: str) -> None:
        super().__init__(folder, project)
        mlflow = package("mlflow", "mlflow")
        self.entities = package("mlflow.entities", "mlflow")
        package("sqlalchemy", "mlflow")
        package("alembic", "mlflow")
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        self.uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not self.uri:
            make_folder(folder)
            self.uri = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        self.client = mlflow.MlflowClient(self.uri)
        found = self.client.get_experiment_by_name(project)
        self.experiment = found.experiment_id if found else self.client.create_experiment(project)

    def is_complete(self, run: TrackedRun) -> bool:
        return any(each.info.status == "FINISHED" for each in self._found(run))

    def begin(self, run: TrackedRun) -> Curves:
        for each in self._found(run):
            self.client.delete_run(each.info.run_id)
        begun = self.client.create_run(self.experiment, run_name=run.name, tags={IDENTITY: run.identity}).info.run_id
        parameters = [self.entities.Param(key, str(value)[:6000]) for key, value in run.flat().items()]
        for first in range(0, len(parameters), 100):
            self.client.log_batch(begun, params=parameters[first : first + 100])
        return _Run(self.client, self.entities, begun)

    def where(self) -> str:
        return f"mlflow ui --backend-store-uri {self.uri}"

    def _found(self, run: TrackedRun) -> list[Any]:
        return self.client.search_runs([self.experiment], f"tags.`{IDENTITY}` = '{run.identity}'")


class _Run(Curves):
    """Metrics wait, to be written many at once."""

    def __init__(self, client: Any, entities: Any, run: str) -> None:
        self.client, self.entities, self.run = client, entities, run
        self.waiting: list[Any] = []
        self.written = time.monotonic()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        self.waiting += [self.entities.Metric(key, value, now, step) for key, value in values.items()]
        if len(self.waiting) > MOST // 2 or time.monotonic() - self.written > 5:
            self._write()

    def finish(self, step: int, summary: Mapping[str, float], by_length: Mapping[int, float]) -> None:
        self.log(step, summary)
        for length, accuracy in by_length.items():
            self.log(length, {BY_LENGTH: accuracy})
        self._write()
        self.client.set_terminated(self.run, "FINISHED")

    def pause(self) -> None:
        self._write()
        self.client.set_terminated(self.run, "KILLED")  # that is what MLflow calls what was not finished

    def _write(self) -> None:
        for first in range(0, len(self.waiting), MOST):
            self.client.log_batch(self.run, self.waiting[first : first + MOST])
        self.waiting, self.written = [], time.monotonic()
