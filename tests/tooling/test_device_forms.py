"""Devices in short forms: which texts are amounts, and which are mistakes."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.tooling.short_forms import ShortFormError, device_kinds


def test_texts_are_read_as_kinds_of_devices() -> None:
    found = device_kinds(["2 x gpu memory=80Gi numa=0 profile=3g.40gb", "1 x nic"])
    assert found == {
        "gpu": [{"memory": "80Gi", "numa": 0, "profile": "3g.40gb", "count": 2}],
        "nic": [{"count": 1}],
    }


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("1 x gpu memory=80GiB", "80GiB is not an amount: write 80Gi"),
        ({"gpu": {"count": 1, "memory": "40GB"}}, "40GB is not an amount: write 40G"),
        ({"gpu": [{"memory": "1.5TiB"}]}, "1.5TiB is not an amount: write 1.5Ti"),
        ("129 x gpu", "129 devices of class gpu: a node can have 128 here"),
    ],
)
def test_what_is_almost_an_amount_and_too_many_devices_are_errors(form: object, why: str) -> None:
    with pytest.raises(ShortFormError, match=why):
        device_kinds(form)
