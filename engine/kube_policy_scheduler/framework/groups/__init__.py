"""Gangs and PodGroups: pods that start together or not at all."""
