"""Open Cluster Management: the scores by which its Placements choose among managed clusters."""

from __future__ import annotations
