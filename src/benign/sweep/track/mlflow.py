"""MLflow, in a file of sqlite: a folder of results is an experiment, a run is a run."""

import logging
import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from benign.sweep.track.tracker import RunLog, Tracker

KEY, CONTENT = "benign.run", "benign.content"
"""tags of a run: its key, and, once it is complete, the digest of its content"""
MOST = 1000
"""metrics that MLflow takes, and runs that it gives, in one go"""
_PLACE = re.compile(r"sqlite:///(.+)")


class MLflow(Tracker):
    """Axes and seed are parameters, variables are metrics, the status is a tag."""

    needs = ("mlflow", "sqlalchemy", "alembic")
    form = "mlflow=sqlite:///FILE"

    @classmethod
    def check(cls, place: str) -> None:
        match = _PLACE.fullmatch(place)
        if not match:
            raise ValueError(f"MLflow's runs are kept in sqlite: write {cls.form}, got {place!r}")
        folder = Path(match[1]).parent
        if not folder.is_dir():
            raise ValueError(f"{folder} is no folder: make it or choose another")

    def sync(self, runs: Iterable[RunLog]) -> int:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would call home
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # a new file is no news
        try:
            return super().sync(runs)
        except (MlflowException, SQLAlchemyError) as error:
            raise ValueError(f"{self.place}: {str(error).splitlines()[0]}") from error

    def view_command(self) -> str:
        return f"mlflow ui --backend-store-uri {shlex.quote(self.place)}"

    def known(self) -> dict[str, str]:
        runs = (run.data.tags for run in self._runs())
        return {tags[KEY]: tags[CONTENT] for tags in runs if KEY in tags and CONTENT in tags}

    def write(self, run: RunLog) -> None:
        from mlflow.entities import Metric, Param

        for other in self._runs(f"tags.`{KEY}` = '{run.key}'"):
            self._client.delete_run(other.info.run_id)
        tags = {KEY: run.key, "status": run.status}
        made = self._client.create_run(self._home, tags=tags, run_name=run.label).info.run_id
        now = int(1000 * time.time())
        metrics = [
            Metric(name, value, now, step)
            for name, points in run.series.items()
            for step, value in sorted(points.items())
        ]
        params = [Param(name, str(value)) for name, value in run.parameters.items()]
        self._client.log_batch(made, params=params)
        for begin in range(0, len(metrics), MOST):
            self._client.log_batch(made, metrics=metrics[begin : begin + MOST])
        self._client.set_tag(made, CONTENT, run.content)
        self._client.set_terminated(made)

    @cached_property
    def _client(self) -> Any:
        from mlflow.tracking import MlflowClient

        return MlflowClient(self.place)

    @cached_property
    def _home(self) -> str:
        """The id of the experiment, which is made where it is not there."""
        known = self._client.get_experiment_by_name(self.experiment)
        return known.experiment_id if known else self._client.create_experiment(self.experiment)

    def _runs(self, which: str = "") -> Iterator[Any]:
        token = None
        while True:
            page = self._client.search_runs([self._home], which, max_results=MOST, page_token=token)
            yield from page
            token = page.token
            if not token:
                return
