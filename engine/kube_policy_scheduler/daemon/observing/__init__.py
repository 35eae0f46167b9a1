"""Observability: metrics, events, decision log, traces."""

from kube_policy_scheduler.adapters.process.import_in_parts import import_in_parts

import_in_parts("prometheus_client")  # with a server and a client of HTTP, a start would wait for 50 modules
