"""Dynamic Resource Allocation as kube-scheduler 1.36 does it: which devices a pod's claims get on a node.

`requests` reads claims once, `allocator` searches one node, `allocations` keeps what was found on all nodes,
`pod_claims` finds the claims of a pod, and `extended_resources` makes one for resources that a DeviceClass provides.
The plugin rests on them; `framework.claim_reservation` is what happens to an allocation afterwards.
"""
