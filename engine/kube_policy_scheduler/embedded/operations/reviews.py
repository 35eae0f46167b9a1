"""Reviews: questions about who somebody is and what they may do, answered without being stored."""

from __future__ import annotations

from kube_policy_scheduler.embedded.access.identity import AUTHENTICATED, User
from kube_policy_scheduler.embedded.access.rbac import Attributes
from kube_policy_scheduler.embedded.access.security import Guard
from kube_policy_scheduler.embedded.errors import Json


def answer(review: Json, user: User, guard: Guard) -> Json:
    """Return a review with its status."""
    done = {**review, "metadata": {"creationTimestamp": None}}
    spec = review.get("spec") or {}
    match review.get("kind"):
        case "SelfSubjectReview":
            done["status"] = {"userInfo": _info(user)}
        case "SelfSubjectRulesReview":
            done["status"] = _rules(user, guard, spec.get("namespace", ""))
        case "TokenReview":
            known = guard.tokens.user_of(f"Bearer {spec.get('token', '')}")
            done["status"] = {"authenticated": True, "user": _info(known)} if known else {"user": {}}
        case "SelfSubjectAccessReview":
            done["status"] = _verdict(user, guard, spec)
        case _:
            groups = tuple(spec.get("groups") or ())
            done["status"] = _verdict(User(spec.get("user", ""), groups), guard, spec)
    return done


def _info(user: User) -> Json:
    return {"username": user.name, "groups": list(user.groups or (AUTHENTICATED,))}


def _verdict(user: User, guard: Guard, spec: Json) -> Json:
    asked = spec.get("resourceAttributes")
    if asked is not None:
        keys = ("group", "resource", "subresource", "namespace", "name")
        wanted = Attributes(asked.get("verb", ""), *(asked.get(key, "") for key in keys))
    else:
        path = spec.get("nonResourceAttributes") or {}
        wanted = Attributes(path.get("verb", ""), path=path.get("path", ""))
    return {"allowed": guard.allows(user, wanted)}


def _rules(user: User, guard: Guard, namespace: str) -> Json:
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    rules = list(guard.authorizer.rules_of(user, namespace))
    if guard.allows(user, Attributes("*", "*", "*")):
        rules.append(everything)
    return {
        "resourceRules": [rule for rule in rules if "resources" in rule],
        "nonResourceRules": [rule for rule in rules if "nonResourceURLs" in rule],
        "incomplete": False,
    }
