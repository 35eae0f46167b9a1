"""Plots as inline SVG, drawn by matplotlib: the same values give the same bytes. Knows nothing of what it plots.

Texts stay texts. Colours are CSS variables of `base.html`, with values of their own for a chart that stands alone,
so that a chart follows its page into dark mode.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from kube_policy_scheduler.wording import amount

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEEDS = "plots need matplotlib, which the extra `reports` installs"
_SERIES = ("#2563eb", "#c2610c", "#0f8a6d", "#b8326f", "#7c4ddb", "#6b7280")
_BAD = 3
"""The series whose colour is nearest to red."""
_STAND_INS = tuple(f"#0100{number:02x}" for number in range(1, len(_SERIES) + 1))
"""What matplotlib draws series with; afterwards each becomes `var(--series-N)`."""
_INK, _LINE = "#010101", "#010201"
_SIZE_INCHES = (6.4, 2.7)
"""So that its texts can be read on a phone, where 72 of its units are 57 pixels, and are not huge on a desk."""
_LETTER_POINTS, _HANDLE_POINTS = 6.0, 62.0
"""What a letter of a legend takes across, and what stands beside its text."""
_LONGEST_NAME, _CONTEXT = 21, 6
"""Letters of a name below a bar; and of what all names have in common, those that are shown."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _INK,
    "axes.labelpad": 6,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "text.usetex": False,
    "text.parse_math": False,
}


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture that templates take as it is."""

    title: str
    svg: str
    """Empty where matplotlib is not installed, or a sentence says more than a picture."""
    sentence: str = ""
    """What is shown instead of a picture that would be empty."""

    def __html__(self) -> str:
        """Return the SVG element, or the sentence, or what to install."""
        return self.svg or f"<p>{escape(self.sentence or f'Not drawn: {NEEDS}.')}</p>"


def can_draw() -> bool:
    """Return whether matplotlib is installed; without it, reports have everything but plots."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def line_chart(
    title: str,
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    across: str,
    up: str,
    about: str = "",
    steps: bool = False,
    low: float | None = 0.0,
    high: float | None = None,
    levels: Mapping[str, float] = {},
) -> Chart:
    """Return lines over a common axis.

    Args:
        title: what is shown.
        series: for each name its places across and its values.
        across: label of the horizontal axis, with its unit.
        up: label of the vertical axis, with its unit.
        about: a sentence for those who do not see the chart.
        steps: a value holds until the next one, as counts do.
        low: where the vertical axis begins; None leaves that to the values.
        high: where it ends.
        levels: for some series a value that is drawn across, dashed.
    """

    if all(len(set(xs)) < 2 for xs, _ in series.values()):
        last = ((name, ys[-1]) for name, (_, ys) in series.items() if len(ys))
        return Chart(title, "", _one_moment(last, up))

    def draw(axes: Axes) -> None:
        for number, (name, (xs, ys)) in enumerate(series.items()):
            axes.plot(
                # where two lines are one, the first is seen below the second
                xs,
                ys,
                color=_colour(number),
                linewidth=max(1.4, 3.0 - 0.8 * number),
                label=name,
                drawstyle="steps-post" if steps else "default",
            )
            if name in levels:
                axes.axhline(levels[name], color=_colour(number), linewidth=1.0, linestyle="--")
        _labels(axes, across, up, low=low, high=high)
        _count(axes, [value for _, ys in series.values() for value in ys])
        _legend(axes, list(series))

    return _chart(title, about, draw)


def bar_chart(
    title: str,
    names: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    across: str = "",
    up: str,
    about: str = "",
    bad: str = "",
) -> Chart:
    """Return bars, for each name one per series, side by side; bad: the series that is drawn as bad news."""
    every = [value for values in series.values() for value in values]
    if not any(every):
        return Chart(title, "", f"No {up}: every value is 0.")

    def draw(axes: Axes) -> None:
        width = 0.8 / max(1, len(series))
        for number, (name, values) in enumerate(series.items()):
            places = [at - 0.4 + (number + 0.5) * width for at in range(len(names))]
            colour = _colour(_BAD if name == bad else number)
            axes.bar(places, values, width=width * 0.94, color=colour, label=name)
        _count(axes, every)
        shown = short_names(names)
        long = any(len(name) * len(names) > 70 for name in shown)
        axes.set_xticks(range(len(names)), shown, rotation=35 if long else 0, ha="right" if long else "center")
        _labels(axes, across, up, low=0.0 if _positive(series) else None)
        _legend(axes, list(series))

    return _chart(title, about, draw)


def scatter_chart(
    title: str,
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    across: str,
    up: str,
    about: str = "",
    logarithmic: bool = False,
) -> Chart:
    """Return points, each series in its colour; those of a single point are drawn larger.

    Args:
        title: what is shown.
        series: for each name its places across and its values.
        across: label of the horizontal axis, with its unit.
        up: label of the vertical axis, with its unit.
        about: a sentence for those who do not see the chart.
        logarithmic: whether the horizontal axis is.
    """

    def draw(axes: Axes) -> None:
        for number, (name, (xs, ys)) in enumerate(series.items()):
            axes.scatter(xs, ys, s=70 if len(xs) == 1 else 18, color=_colour(number), label=name)
        if logarithmic:
            axes.set_xscale("log")
        _labels(axes, across, up, low=None)
        _legend(axes, list(series))

    return _chart(title, about, draw)


def histogram(
    title: str,
    series: Mapping[str, Sequence[float]],
    *,
    across: str,
    up: str,
    about: str = "",
    bins: int = 20,
    within: tuple[float, float] | None = None,
) -> Chart:
    """Return how many values of each series fall into each of `bins` equal ranges; outlines, so that none is hidden.

    Args:
        title: what is shown.
        series: values by name.
        across: label of the horizontal axis, with its unit.
        up: what is counted.
        about: a sentence for those who do not see the chart.
        bins: how many ranges.
        within: where the ranges begin and end; without it, at the least and the greatest value.
    """

    def draw(axes: Axes) -> None:
        every = [value for values in series.values() for value in values]
        span = within or ((min(every), max(every)) if every else (0.0, 1.0))
        for number, (name, values) in enumerate(series.items()):
            colour = _colour(number)
            shared: dict[str, Any] = {"bins": bins, "range": span, "color": colour}
            axes.hist(values, **shared, histtype="stepfilled", alpha=0.25)
            axes.hist(values, **shared, histtype="step", linewidth=1.6, label=name)
        _labels(axes, across, up, low=0.0)
        _legend(axes, list(series))

    return _chart(title, about, draw)


def heat_map(
    title: str,
    values: Sequence[Sequence[float]],
    *,
    rows: str,
    across: str,
    up: str,
    about: str = "",
    within: tuple[float, float] = (0.0, 1.0),
    span: tuple[float, float] | None = None,
) -> Chart:
    """Return a matrix as colours, its first row at the top.

    Args:
        title: what is shown.
        values: `[rows][places]`.
        rows: what the rows are.
        across: label of the horizontal axis, with its unit.
        up: what the colours mean.
        about: a sentence for those who do not see the chart.
        within: the values of the darkest and of the brightest colour.
        span: where the horizontal axis begins and ends; without it, columns are counted.
    """

    def draw(axes: Axes) -> None:
        low, high = span or (0.0, float(len(values[0]) if values else 1))
        picture = axes.imshow(
            values, aspect="auto", interpolation="nearest", cmap="viridis", vmin=within[0], vmax=within[1],
            extent=(low, high, len(values), 0),
        )  # fmt: skip
        axes.set_xlabel(across)
        axes.set_ylabel(rows)
        figure = axes.get_figure()
        assert figure is not None
        bar = figure.colorbar(picture, ax=axes, label=up)
        bar.outline.set_visible(False)

    return _chart(title, about, draw)


def _one_moment(values: Iterable[tuple[str, float]], up: str) -> str:
    """Return the values of a chart that has a single moment."""
    said = ", ".join(f"{name} {amount(value)}" for name, value in values)
    return f"Only one moment was recorded, in {up}: {said}." if said else "No values."


def _count(axes: Axes, values: Iterable[float]) -> None:
    """Let the vertical axis have whole numbers only if all values are."""
    from matplotlib.ticker import MaxNLocator

    if all(float(value).is_integer() for value in values):
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _positive(series: Mapping[str, Sequence[float]]) -> bool:
    return all(value >= 0 for values in series.values() for value in values)


def _colour(number: int) -> str:
    return _STAND_INS[number % len(_STAND_INS)]


def _labels(axes: Axes, across: str, up: str, *, low: float | None, high: float | None = None) -> None:
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(visible=True, axis="y")
    axes.tick_params(length=0)
    if low is not None or high is not None:
        axes.set_ylim(bottom=low, top=high)


def _legend(axes: Axes, names: Sequence[str]) -> None:
    if len(names) > 1:
        widest = _LETTER_POINTS * max(map(len, names)) + _HANDLE_POINTS
        columns = max(1, min(len(names), 6, int(72 * _SIZE_INCHES[0] // widest)))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2, columnspacing=2.6)


def short_names(names: Sequence[str]) -> list[str]:
    """Return names that fit below bars: of long ones, what all of them begin and end with is left out."""
    if len(names) < 2 or max(map(len, names)) <= _LONGEST_NAME:
        return [_cut(name) for name in names]
    begin = _alike(names)
    end = _alike([name[begin:][::-1] for name in names])
    begin, end = (count if count > _CONTEXT else 0 for count in (begin, end))
    shown = []
    for name in names:
        middle = name[max(0, begin - _CONTEXT) : len(name) - max(0, end - _CONTEXT)]
        shown.append(f"{'…' if begin else ''}{_cut(middle)}{'…' if end else ''}")
    return shown


def _alike(names: Sequence[str]) -> int:
    """Return how many letters all names begin with alike."""
    return sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False)))


def _cut(name: str) -> str:
    """Return a name without its middle, if it is too long."""
    if len(name) <= _LONGEST_NAME:
        return name
    half = (_LONGEST_NAME - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def stacked(charts: Sequence[Chart]) -> str:
    """Return one SVG document with charts below each other, each under its title; empty without charts."""
    width, height, head = 72 * _SIZE_INCHES[0], 72 * _SIZE_INCHES[1], 24.0
    parts = [
        f'<text x="8" y="{number * (height + head) + 16:g}" font-family="system-ui, sans-serif" font-size="13">'
        f"{escape(chart.title)}</text>\n" + _placed(chart, number * (height + head) + head, width)
        for number, chart in enumerate(charts)
    ]
    whole = len(parts) * (height + head)
    opening = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        f' viewBox="0 0 {width:g} {whole:g}" width="{width:g}" height="{whole:g}">\n'
    )
    return opening + "".join(parts) + "</svg>\n" if parts else ""


def _placed(chart: Chart, y: float, width: float) -> str:
    """Return a chart as a part of a document, or its sentence."""
    if not chart.svg:
        text = escape(chart.sentence)
        return f'<text x="8" y="{y + 20:g}" font-family="system-ui, sans-serif" font-size="11">{text}</text>\n'
    return chart.svg.replace("<svg ", f'<svg x="0" y="{y:g}" width="{width:g}" ', 1)


# --- from a drawing to an element ------------------------------------------------------------------------


def _chart(title: str, about: str, draw: Any) -> Chart:
    if not can_draw():
        return Chart(title, "")
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context({**_STYLE, "svg.hashsalt": "chart"}):
        figure: Figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        out = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    return Chart(title, _element(out.getvalue(), title, about))


def _element(text: str, title: str, about: str) -> str:
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"font-family: [^;\"]*", "font-family: system-ui, sans-serif", text)
    text = re.sub(r"\bfont: ([^;\"']*?px) [^;\"]*", r"font: \1 system-ui, sans-serif", text)
    # a style element would hold for the whole page
    text = re.sub(r"<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>\s*", "", text)
    for number, (stand_in, colour) in enumerate(zip(_STAND_INS, _SERIES, strict=True), 1):
        text = text.replace(stand_in, f"var(--series-{number}, {colour})")
    text = text.replace(_INK, "currentColor").replace(_LINE, "var(--line, #d9dde5)")
    text = _numbered(text, title)
    view = re.search(r'viewBox="[^"]*"', text)
    assert view is not None, "matplotlib writes a viewBox"
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {view[0]} role="img"'
        ' stroke-linejoin="round" stroke-linecap="butt"'
        f' aria-label="{escape(f"{title}. {about}".strip() if about else title)}">\n <title>{escape(title)}</title>\n'
    )
    return opening + text[text.index(">") + 1 :].lstrip("\n")


def _numbered(text: str, title: str) -> str:
    """Return the text with ids that are the same each time, and different from those of other charts on a page."""
    wanted = dict.fromkeys(re.findall(r"""(?:url\(|href=")#([^)"]+)""", text))
    text = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in wanted else "", text)
    for number, name in enumerate(wanted):
        text = re.sub(rf'(id="|#){re.escape(name)}(?=["\)])', rf"\1CHART-{number}", text)
    mark = hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:8]
    return re.sub(r'(id="|#)CHART-', rf"\1chart-{mark}-", text)
