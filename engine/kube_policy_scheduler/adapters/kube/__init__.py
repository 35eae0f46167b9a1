"""The client of the Kubernetes API server. It knows the API and nothing about scheduling.

From below to above: `connection` (one HTTP/1.1 connection), `pool` (many, and the proxy), `transport` (requests,
with `kubeconfig` and `credentials`); on it `reflector` (list and watch, decoded by `decoding`), `binding`,
`eviction`, `lease`, and behind one `outbox` the writes that may wait: `events` and `pod_status`.

Commands send their requests by `official_client` instead: `lists`, `access`, `rollout_view`. What both need, such as
`config_maps`, takes either as a `Client`.
"""
