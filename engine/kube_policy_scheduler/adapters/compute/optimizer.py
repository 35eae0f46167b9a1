"""Searches numbers with Optuna. Knows ranges and costs, not what they mean; Optuna is an extra, imported here only."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kube_policy_scheduler.installation import command_for

if TYPE_CHECKING:
    import optuna

_STUDY = "tune"
_FINGERPRINT, _COSTS, _VALUES = "fingerprint", "costs", "values"
_MOST_BYTES = 64 * 1024 * 1024
_LONGEST_LINE = 4096


class OptimizerError(Exception):
    """The search cannot begin."""


@dataclass(frozen=True, slots=True)
class Range:
    """A number to be found."""

    name: str
    low: float
    high: float
    logarithmic: bool


@dataclass(frozen=True, slots=True)
class Tried:
    """Numbers that were tried, with their cost on each sample."""

    values: Mapping[str, float]
    costs: tuple[float, ...]


class Optimizer:
    """A search by Optuna's TPE sampler. The same seed and the same costs give the same proposals.

    With a file, every trial is written to it when its costs are known, and a later search goes on with these trials.
    """

    def __init__(
        self,
        ranges: Sequence[Range],
        *,
        seed: int,
        rounded: Callable[[str, float], float],
        file: Path | None,
        fingerprint: str,
    ) -> None:
        """Begin, or go on.

        Args:
            ranges: the numbers.
            seed: of the proposals.
            rounded: for a name and a value, the value as it will be used.
            file: where trials are kept.
            fingerprint: of everything that the costs depend on; a file with another one is refused.

        Raises:
            OptimizerError: Optuna is not installed, or the file cannot be used.
        """
        self._ranges, self._seed, self._rounded = ranges, seed, rounded
        self._study = _study(file, fingerprint=fingerprint)

    def done(self) -> list[Tried]:
        """Return the finished trials, in their order."""
        finished = (trial for trial in self._study.trials if _COSTS in trial.user_attrs)
        return [
            Tried(json.loads(trial.user_attrs[_VALUES]), tuple(json.loads(trial.user_attrs[_COSTS])))
            for trial in finished
        ]

    def propose(self, count: int, *, first: Mapping[str, float] | None = None) -> list[dict[str, float]]:
        """Return the next numbers to try; `first` is tried before all others. `report` their costs next."""
        import optuna

        self._asked: list[optuna.Trial] = []
        proposed = []
        with _quiet():
            # seeded by how far it is: a search that goes on after a stop proposes what it would have proposed
            self._study.sampler = optuna.samplers.TPESampler(
                seed=self._seed + len(self.done()), multivariate=True, constant_liar=True, n_startup_trials=8
            )
            if first is not None:
                self._study.enqueue_trial(dict(first))
            for _ in range(count):
                trial = self._study.ask()
                values = {}
                for each in self._ranges:
                    value = trial.suggest_float(each.name, each.low, each.high, log=each.logarithmic)
                    values[each.name] = self._rounded(each.name, value)
                self._asked.append(trial)
                proposed.append(values)
        return proposed

    def report(self, number: int, values: Mapping[str, float], costs: Sequence[float]) -> None:
        """Keep the costs of the proposal of that number."""
        trial = self._asked[number]
        with _quiet():
            trial.set_user_attr(_VALUES, json.dumps(dict(values)))
            trial.set_user_attr(_COSTS, json.dumps(list(costs)))
            self._study.tell(trial, sum(costs) / len(costs))


def _study(file: Path | None, *, fingerprint: str) -> optuna.Study:
    try:
        with _quiet():
            import optuna
            from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise OptimizerError(f"Optuna is not installed: run {command_for('tune')}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with _quiet():
        if file is None:
            return optuna.create_study(study_name=_STUDY)
        if not _is_record(file):
            raise OptimizerError(f"{file} is not a record of a search")
        try:
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(file)))
            study = optuna.create_study(study_name=_STUDY, storage=storage, load_if_exists=True)
            known = study.user_attrs.get(_FINGERPRINT)
            if known is None:
                study.set_user_attr(_FINGERPRINT, fingerprint)
        except OSError as error:
            raise OptimizerError(f"cannot write {file}: {(error.strerror or str(error)).lower()}") from error
        except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
            raise OptimizerError(f"{file} is not a record of a search") from error
    if known not in (None, fingerprint):
        raise OptimizerError(
            f"{file} is of a search with other policies, traces or options: repeat these, or name another file"
        )
    return study


def _is_record(file: Path) -> bool:
    """Return whether a file can be gone on with: Optuna would append to any other one as well."""
    if not file.exists():
        return True
    try:
        with file.open("rb") as opened:
            line = opened.readline(_LONGEST_LINE)
        head = json.loads(line) if line else None
        return line == b"" or (
            isinstance(head, dict)
            and head.get("op_code") == 0
            and head.get("study_name") == _STUDY
            and file.stat().st_size <= _MOST_BYTES
        )
    except (OSError, ValueError, RecursionError):
        return False


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna's notes about experimental features, such as the journal and the multivariate sampler, quiet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
