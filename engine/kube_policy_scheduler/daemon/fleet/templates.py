"""Reads labels and annotations of templates for the decision maker; says once of each kind if that cannot be done."""

from __future__ import annotations

import logging

from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.adapters.kube.templates import MOST_KINDS, TemplateMetadata
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.fleet.karmada.decision_maker import Template
from kube_policy_scheduler.fleet.karmada.objects import ObjectReference

logger = logging.getLogger(__name__)


class TemplateReader:
    """Asks the API server of the control plane."""

    def __init__(self, transport: Transport) -> None:
        self._templates = TemplateMetadata(transport)
        self._told: set[tuple[str, str]] = set()

    async def read(self, template: ObjectReference) -> Template:
        """Return labels and annotations; nothing if the template may not or cannot be read, which is logged once."""
        try:
            meta = await self._templates.read(template)
        except KubeError as error:
            kind = template.api_version, template.kind
            if kind not in self._told and len(self._told) < MOST_KINDS:
                self._told.add(kind)
                fields = {"kind": template.kind, "apiVersion": template.api_version, "why": str(error)}
                logger.warning("labels of templates cannot be read; to policies they are missing", extra=fields)
            return Template()
        return Template(meta.labels or {}, meta.annotations or {}) if meta is not None else Template()
