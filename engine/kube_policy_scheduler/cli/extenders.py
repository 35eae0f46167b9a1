"""Says which HTTP extenders of `--config` a command does not ask, although the scheduler asks them."""

from __future__ import annotations

from kube_policy_scheduler.cli.owners import config_file
from kube_policy_scheduler.cli.terminal import say
from kube_policy_scheduler.wording import plural, some


def say_not_asked() -> None:
    """Say on stderr that the extenders of the running command's `--config` are not asked; nothing without any.

    An extender may hand out devices when it is asked, and tried placements are not what it would see. So only the
    scheduler itself asks, about pods that it is about to place.

    Raises:
        DocumentError: the configuration cannot be read, or its extenders are not as they should be.
    """
    config = config_file()
    if config is None:
        return
    from kube_policy_scheduler.adapters.http.extender import shown_url
    from kube_policy_scheduler.documents.extender_settings import read_extenders

    found = [shown_url(each.url_prefix) for each in read_extenders(config)]
    if found:
        those = f"{plural(len(found), 'extender')} of {config}: {some(found)}"
        say(f"policyctl: the scheduler asks {those}; this command does not, and nodes that they reject fit", err=True)
