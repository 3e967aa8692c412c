"""Draw curves of growth as SVG: how many times more each costs than at the first point.

Both axes are logarithmic, so that what grows linearly is parallel to the dashed diagonal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 200, 40, 50
_COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df")
_STYLE = 'font-family="sans-serif" font-size="12" fill="#57606a"'


def draw(path: Path, title: str, xs: Sequence[float], lines: Mapping[str, Sequence[float]]) -> None:
    """Write a picture. Each line has a positive value for each x."""
    relative = {name: [value / values[0] for value in values] for name, values in lines.items()}
    most = max(xs[-1] / xs[0], *(max(values) for values in relative.values()))
    least = min(1.0, *(min(values) for values in relative.values()))

    def point(x: float, y: float) -> str:
        across = math.log(x / xs[0]) / math.log(xs[-1] / xs[0])
        up = math.log(y / least) / math.log(most / least)
        return (
            f"{_LEFT + across * (WIDTH - _LEFT - _RIGHT):.1f},"
            f"{HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM):.1f}"
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" {_STYLE} font-weight="bold">{escape(title)}</text>',
        _line([point(x, x / xs[0]) for x in xs], "#8c959f", dashed=True),
        _label(point(xs[-1], xs[-1] / xs[0]), "linear", "#8c959f"),
    ]
    for x in xs:
        left, _ = point(x, least).split(",")
        parts.append(
            f'<text x="{left}" y="{HEIGHT - 28}" {_STYLE} text-anchor="middle">{x:,g}</text>'
        )
    for power in range(math.ceil(math.log10(least)), math.floor(math.log10(most)) + 1):
        _, top = point(xs[0], 10.0**power).split(",")
        parts += [
            f'<text x="{_LEFT - 8}" y="{top}" {_STYLE} text-anchor="end">{10.0**power:g}×</text>',
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{top}" y2="{top}" stroke="#d0d7de"/>',
        ]
    for colour, (name, values) in zip(_COLOURS, relative.items(), strict=False):
        points = [point(x, value) for x, value in zip(xs, values, strict=True)]
        parts += [_line(points, colour), _label(points[-1], name, colour)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>", ""]))


def exponent(xs: Sequence[float], values: Sequence[float]) -> float:
    """Return how a value grows from the first point to the last: 1 is linear, 2 quadratic."""
    return math.log(values[-1] / values[0]) / math.log(xs[-1] / xs[0])


def _line(points: Sequence[str], colour: str, *, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"'
        f"{dash}/>"
    )


def _label(point: str, text: str, colour: str) -> str:
    x, y = point.split(",")
    return (
        f'<text x="{float(x) + 8:.1f}" y="{y}" font-family="sans-serif" font-size="12" '
        f'fill="{colour}">{escape(text)}</text>'
    )
