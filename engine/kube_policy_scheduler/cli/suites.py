"""Test files for the commands: a path to a suite that is ready to run, with all the files that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from kube_policy_scheduler.cli.files import is_below
from kube_policy_scheduler.cli.kubernetes_option import chosen_rules
from kube_policy_scheduler.diagnostics import Diagnostic, Source
from kube_policy_scheduler.documents.codes import UNREADABLE, WRONG_VALUE
from kube_policy_scheduler.documents.fixtures import FixtureObject, read_objects
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_document, parse_documents, read_source
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, NOTHING_CHOSEN, KubernetesChoice, VersionError

if TYPE_CHECKING:
    from kube_policy_scheduler.kubernetes_rules import KubernetesRules
    from kube_policy_scheduler.policy.policy_set import PolicySet
    from kube_policy_scheduler.tooling.tester.case_runner import Observe, ObserveWorkload
    from kube_policy_scheduler.tooling.tester.run import SuiteRun
    from kube_policy_scheduler.tooling.tester.suite_file import Fixtures, Part, Suite

_OBJECTS = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """A test file, its policies and its fixtures."""

    suite: Suite
    sources: tuple[Source, ...]
    """The policies' texts."""
    policy_set: PolicySet
    diagnostics: tuple[Diagnostic, ...]
    """What lint says about the policies; no errors."""
    fixtures: Fixtures
    scheduler: str
    """The scheduler name of pods that name none."""
    kubernetes: KubernetesRules
    """By whose rules pods are decided."""

    def run(
        self,
        *,
        shuffle: bool = False,
        observe: Observe | None = None,
        observe_workload: ObserveWorkload | None = None,
    ) -> SuiteRun:
        """Return the suite, ready to run."""
        from kube_policy_scheduler.tooling.tester.outcome import CompiledPolicies
        from kube_policy_scheduler.tooling.tester.run import SuiteRun

        policies = CompiledPolicies(self.policy_set, self.diagnostics)
        return SuiteRun(
            self.suite,
            policies,
            self.fixtures,
            scheduler=self.scheduler,
            shuffle=shuffle,
            observe=observe,
            observe_workload=observe_workload,
            kubernetes=self.kubernetes,
        )


def load_suite(
    path: Path,
    source: Source | None = None,
    *,
    root: Path | None = None,
    kubernetes: KubernetesChoice = NOTHING_CHOSEN,
    drafts: Mapping[Path, str] = MappingProxyType({}),
) -> LoadedSuite:
    """Read a test file and all that it names.

    Args:
        path: the file; what it names starts at its folder.
        source: its text, where that has been read already.
        root: the folder that files which it names must be below, resolved; None: they may be anywhere.
        kubernetes: by whose rules pods are decided; what it does not say, the test file says, else its cluster files.
        drafts: texts of policy files that take the place of what is in the files, by resolved path.

    Raises:
        DocumentError: a file cannot be read, is outside the root or not what it should be, or a policy has errors.
    """
    from kube_policy_scheduler.policy.policy_set import DEFAULT_SCHEDULERS, PolicySet
    from kube_policy_scheduler.tooling.tester.suite_file import read_suite

    suite = read_suite(parse_document(source or read_source(path)))
    named = _Named(suite, root, drafts)
    sources = tuple(found for part in suite.policies for found in named.policies(part))
    policy_set, diagnostics = PolicySet.of(()), tuple[Diagnostic, ...]()
    if sources:
        from kube_policy_scheduler.cli.policies import loaded

        policy_set, diagnostics = loaded(sources)
    # a pod that names no scheduler means the one that its policies serve
    scheduler = min(policy_set.schedulers or DEFAULT_SCHEDULERS)
    fixtures = named.fixtures()
    rules = chosen_rules(kubernetes, lambda: _rules(suite, fixtures))
    return LoadedSuite(suite, sources, policy_set, diagnostics, fixtures, scheduler, rules)


def _rules(suite: Suite, fixtures: Fixtures) -> KubernetesRules:
    """Return the rules that a test file says, else those of its cluster files, else the default ones.

    Raises:
        DocumentError: the cluster files are of several versions, or a gate cannot be switched in theirs.
    """
    try:
        return suite.kubernetes.rules(lambda: _recorded_rules(suite, fixtures) or DEFAULT_RULES)
    except VersionError as error:
        raise DocumentError([suite.document.error(("featureGates",), WRONG_VALUE, message=str(error))]) from error


def _recorded_rules(suite: Suite, fixtures: Fixtures) -> KubernetesRules | None:
    from kube_policy_scheduler.tooling.cluster_state import recorded_rules
    from kube_policy_scheduler.tooling.tester.codes import BAD_FIXTURE

    try:
        return recorded_rules(fixtures.cluster)
    except VersionError as error:
        message = f'cluster: {error}; write `kubernetes: "1.37"` into the test file'
        raise DocumentError([suite.document.error(("cluster",), BAD_FIXTURE, message=message)]) from error


class _Named:
    """The files that a test file names."""

    def __init__(self, suite: Suite, root: Path | None, drafts: Mapping[Path, str]) -> None:
        self._suite = suite
        self._root = root
        self._drafts = drafts

    def fixtures(self) -> Fixtures:
        """Return what the files hold, policies aside."""
        from kube_policy_scheduler.tooling.tester.suite_file import Fixtures

        suite = self._suite
        cluster = tuple(one for part in suite.clusters for one in self._objects(part))
        wanted = {part.value: part for each in suite.forall for part in each.files}
        pods = {name: self._pods(part) for name, part in wanted.items()}
        refused = {one.file.value: one.file for one in suite.invalid if one.file is not None}
        policies = {name: self._one_policy(part) for name, part in refused.items()}
        return Fixtures(cluster, pods, policies)

    def policies(self, part: Part) -> list[Source]:
        """Return the policies of a file, or of a part of a YAML file such as `configmap.yaml#data/spread.policy`."""
        name, hash_, pointer = part.value.partition("#")
        path = self._beside(part, name)
        if path.is_dir():
            raise self._problem(part, f"cannot read {path}: is a directory, expected a policy file")
        if not hash_ and (draft := self._drafts.get(path.resolve())) is not None:
            return [Source(str(path), draft)]
        source = read_source(path)
        if not hash_:
            return [source]
        everything = (_at(document.value, pointer) for document in parse_documents(source))
        texts = [text for text in everything if text is not None]
        if len(texts) != 1:
            from kube_policy_scheduler.tooling.tester.suite_file import did_you_mean

            count = "nothing" if not texts else f"{len(texts)} texts"
            known = [f"data/{key}" for document in parse_documents(source) for key in _data(document.value)]
            none = "expected a ConfigMap, such as configmap.yaml#data/spread.policy"
            advice = did_you_mean(pointer, known, none=none)
            raise self._problem(part, f"{path} has {count} at `{pointer}`", advice)
        (found,) = texts
        if isinstance(found, str):
            return [Source(f"{path}#{pointer}", found)]
        policies = {key: text for key, text in found.items() if key.endswith(".policy") and isinstance(text, str)}
        if not policies:
            raise self._problem(part, f"{path} has no .policy at `{pointer}`")
        return [Source(f"{path}#{pointer}/{key}", text) for key, text in policies.items()]

    def _one_policy(self, part: Part) -> Source:
        found = self.policies(part)
        if len(found) != 1:
            raise self._problem(part, f"expected one policy, {part.value} contains {len(found)}")
        return found[0]

    def _pods(self, part: Part) -> tuple[FixtureObject, ...]:
        from kube_policy_scheduler.tooling.tester.codes import NO_PODS

        found = tuple(one for one in self._objects(part) if one.kind == "Pod")
        if not found:
            message = f"{part.value} contains no pods to test"
            raise DocumentError([self._suite.document.error(part.path, NO_PODS, message=message)])
        return found

    def _objects(self, part: Part) -> Iterator[FixtureObject]:
        """Yield the objects of a file, or of all files of a folder."""
        path = self._beside(part, part.value)
        if not path.is_dir():
            yield from read_objects(path)
            return
        inside = sorted(one for one in path.rglob("*") if one.suffix in _OBJECTS and one.is_file())
        if not inside:
            raise self._problem(part, f"{path} holds no {', '.join(_OBJECTS)} file")
        for one in inside:
            self._check_below(part, one)
            yield from read_objects(one)

    def _beside(self, part: Part, name: str) -> Path:
        """Return a file or folder that the test file names.

        Raises:
            DocumentError: it is not there, or not where it may be.
        """
        path = Path(self._suite.document.source.name).parent / name
        try:
            self._check_below(part, path)
            there = path.is_file() or path.is_dir()
            problem = f"cannot read {path}: it is not a file" if path.exists() else f"{path} does not exist"
        except (OSError, ValueError) as error:  # a name that is too long, or has a NUL
            reason = getattr(error, "strerror", None) or str(error)
            raise self._problem(part, f"cannot read {str(path)[:200]!r}: {reason.lower()}") from error
        if not there:
            advice = "paths in a test file are relative to its folder"
            raise self._problem(part, problem, advice)
        return path

    def _check_below(self, part: Part, path: Path) -> None:
        if self._root is not None and not is_below(path, self._root):
            link = f" is a link to {path.resolve()}, which" if path.is_symlink() else ""
            advice = "a test file can use only files of its project; for files elsewhere, use --root FOLDER"
            raise self._problem(part, f"{path}{link} is outside {self._root}", advice)

    def _problem(self, part: Part, message: str, advice: str = "") -> DocumentError:
        return DocumentError([self._suite.document.error(part.path, UNREADABLE, message=message, advice=advice)])


def _data(value: object) -> list[str]:
    """Return the keys of a ConfigMap."""
    data = value.get("data") if isinstance(value, dict) else None
    return list(data) if isinstance(data, dict) else []


def _at(value: object, pointer: str) -> str | dict[str, object] | None:
    """Return the text or mapping at a path of keys, of which the last may itself hold a slash."""
    if not pointer:
        return value if isinstance(value, str | dict) else None
    if not isinstance(value, dict):
        return None
    if pointer in value:
        return _at(value[pointer], "")
    head, _, rest = pointer.partition("/")
    return _at(value[head], rest) if head in value and rest else None
