"""Curves as one SVG file: a panel for each axis, both scales logarithmic, so that linear growth has slope 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tests.benchmarks.growth import Curve

_WIDTH, _HEIGHT = 460, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 32, 34, 40
_COLORS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed")


def svg(curves: Sequence[Curve], *, title: str) -> str:
    """Return the picture."""
    axes = list(dict.fromkeys(curve.axis for curve in curves))
    panels = []
    for position, axis in enumerate(axes):
        x, y = position % 2 * _WIDTH, 40 + position // 2 * _HEIGHT
        panel = _panel([curve for curve in curves if curve.axis == axis], axis)
        panels.append(f'<g transform="translate({x},{y})">{panel}</g>')
    width, height = 2 * _WIDTH, 40 + math.ceil(len(axes) / 2) * _HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
        f'<rect width="{width}" height="{height}" fill="white"/>'
        f'<text x="{_LEFT}" y="26" font-size="15" font-weight="bold">{escape(title)}</text>{"".join(panels)}</svg>\n'
    )


def _panel(curves: Sequence[Curve], axis: str) -> str:
    xs = [max(x, 1) for curve in curves for x in curve.xs]
    ys = [y for curve in curves for y in curve.cpu_us]
    across = _Scale(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT)
    up = _Scale(10 ** math.floor(math.log10(min(ys))), 10 ** math.ceil(math.log10(max(ys))), _HEIGHT - _BOTTOM, _TOP)
    parts = [f'<text x="{_LEFT}" y="20" font-size="12">µs of CPU per decision, by {escape(axis)}</text>']
    for tick in across.ticks():
        parts.append(_line(across(tick), _TOP, across(tick), _HEIGHT - _BOTTOM))
        parts.append(_text(across(tick), _HEIGHT - _BOTTOM + 16, f"{tick:,}", "middle"))
    for tick in up.ticks():
        parts.append(_line(_LEFT, up(tick), _WIDTH - _RIGHT, up(tick)))
        parts.append(_text(_LEFT - 6, up(tick) + 4, f"{tick:,}", "end"))
    for number, curve in enumerate(curves):
        color = _COLORS[number % len(_COLORS)]
        points = [(across(max(x, 1)), up(y)) for x, y in zip(curve.xs, curve.cpu_us, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"/>' for x, y in points]
        parts.append(_text(_LEFT + 8, _TOP + 14 + 14 * number, curve.label, "start", color))
    return "".join(parts)


class _Scale:
    """Logarithmic: from values to places on the picture."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._high = low, max(high, low * 10)
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        share = math.log(value / self._low) / math.log(self._high / self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[int]:
        """Return the powers of ten that are on the scale."""
        first, last = math.ceil(math.log10(self._low) - 1e-9), math.floor(math.log10(self._high) + 1e-9)
        return [int(10**exponent) for exponent in range(first, last + 1)]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#e5e7eb"/>'


def _text(x: float, y: float, text: str, anchor: str, color: str = "#374151") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'
