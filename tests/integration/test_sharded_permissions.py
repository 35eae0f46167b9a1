"""deploy/overlays/sharded: the permissions of its role are used and enough, also when a replica dies."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, built, named
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.front import Front
from tests.integration.kubectl import kubectl
from tests.integration.permissions import used
from tests.integration.test_permissions import ACCOUNT, HOME
from tests.integration.test_permissions import secure_front as secure_front

pytestmark = pytest.mark.needs("kubectl")
OVERLAY = DEPLOY / "overlays" / "sharded"


def test_replicas_that_share_use_all_that_their_role_adds(
    cluster: Cluster, secure_front: Front, scheduler: StartScheduler, policies: ConfigMapVolume, tmp_path: Path
) -> None:
    kubectl(cluster.kubeconfig(tmp_path / "admin"), "apply", "-k", str(OVERLAY))
    config = tmp_path / "config.yaml"
    times = {"leaseNamespace": HOME, "leaseDuration": "20s", "renewDeadline": "15s", "retryPeriod": "500ms"}
    kind = {"apiVersion": "policy-scheduler/v1alpha1", "kind": "PolicySchedulerConfiguration"}
    config.write_text(yaml.safe_dump({**kind, "leaderElection": times}))
    kubeconfig = secure_front.kubeconfig(tmp_path / "kubeconfig", user={"token": cluster.token(HOME, ACCOUNT)})
    arguments = (f"--config={config}", f"--kubeconfig={kubeconfig}", f"--policies={policies.path}", "--sharding")
    first, second = (scheduler(*arguments, defaults=False).start_ready() for _ in range(2))
    first.kill()
    added = {
        (group, resource, verb)
        for rule in named("Role", "policy-scheduler-shards", among=built(OVERLAY))["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    leaving = {("coordination.k8s.io", "leases", "get")}
    eventually(lambda: added - leaving <= used(secure_front), else_=lambda: str(used(secure_front)))
    assert second.terminate() == 0
    assert added <= used(secure_front)
    assert {(e.resource, e.verb) for e in secure_front.exchanges if e.code == 403} == set()
