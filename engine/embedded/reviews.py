"""Reviews: questions about the asker, answered without being stored. Everything is allowed for now."""

from __future__ import annotations

from engine.embedded.errors import Json
from engine.embedded.identity import User


def answer(review: Json, user: User) -> Json:
    """Return a review with its status."""
    done = {**review, "metadata": {"creationTimestamp": None}}
    match review.get("kind"):
        case "SelfSubjectReview":
            done["status"] = {"userInfo": {"username": user.name, "groups": list(user.groups)}}
        case "SelfSubjectRulesReview":
            done["status"] = {
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": False,
            }
        case "TokenReview":
            done["status"] = {"authenticated": True, "user": {"username": user.name, "groups": list(user.groups)}}
        case _:
            done["status"] = {"allowed": True}
    return done
