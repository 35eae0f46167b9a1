"""Events in their two API versions. They are one kind of object: stored as core v1, shown as either."""

from __future__ import annotations

from kube_policy_scheduler.embedded.errors import Json

_RENAMED = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_BACK = {old: new for new, old in _RENAMED.items()}


def to_core(event: Json) -> Json:
    """Return an events.k8s.io/v1 event as core v1."""
    done = {_RENAMED.get(key, key): value for key, value in event.items()}
    done["apiVersion"], done["kind"] = "v1", "Event"
    done.setdefault("involvedObject", {})
    done.setdefault("source", {})
    done.setdefault("firstTimestamp", None)
    done.setdefault("lastTimestamp", None)
    done.setdefault("reportingInstance", "")
    done.setdefault("reportingComponent", "")
    if series := done.get("series"):
        done["series"] = dict(series)
    return done


def to_new(event: Json) -> Json:
    """Return a core v1 event as events.k8s.io/v1."""
    done = {_BACK.get(key, key): value for key, value in event.items()}
    done["apiVersion"], done["kind"] = "events.k8s.io/v1", "Event"
    done.setdefault("eventTime", None)
    for name in ("reportingController", "reportingInstance"):
        if not done.get(name):
            done.pop(name, None)
    return done


def renamed_to_core(patch: Json) -> Json:
    """Return a merge patch of an events.k8s.io/v1 event as one of core v1."""
    done = {_RENAMED.get(key, key): value for key, value in patch.items()}
    done.pop("apiVersion", None)
    return done
