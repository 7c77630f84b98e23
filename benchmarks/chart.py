"""The chart of a report: bars of steady rates for each job, and how the cost of an event grows. Plain SVG."""

from collections.abc import Sequence
from html import escape

from benchmarks.goals import costs
from benchmarks.results import Results, Spread

_WIDTH = 880
_PAD = 28
_NAMES = 178  # pixels for the names of engines
_BAR, _STEP = 16, 26
_JOBS = {
    "counts": "Counts in 10-minute windows",
    "sessions": "Sessions, early and final",
    "archive": "Archive to Delta",
}
# A card with a background color, as in the other pictures of the docs: it is readable on light and dark pages.
_STYLE = """
  .card { fill: #f8fafc }
  text { font: 14px ui-sans-serif, system-ui, sans-serif; fill: #0f172a }
  .title { font-size: 17px; font-weight: 600 }
  .head { font-weight: 600 }
  .soft { fill: #64748b; font-size: 13px }
  .own { fill: #1d4ed8 }
  .peer { fill: #94a3b8 }
  .floor { fill: none; stroke: #94a3b8; stroke-width: 1.5; stroke-dasharray: 4 3 }
  .range { stroke: #0f172a; stroke-width: 1.5; opacity: 0.6 }
  .grid { stroke: #cbd5e1 }
  .line { fill: none; stroke-width: 2.5 }
  .a { stroke: #1d4ed8 } .b { stroke: #b45309 } .c { stroke: #15803d }
  .fa { fill: #1d4ed8 } .fb { fill: #b45309 } .fc { fill: #15803d }
"""


def draw(results: Results) -> str:
    """Return the chart."""
    body: list[str] = []
    options, machine = results.options, results.machine
    y = _PAD + 16
    body.append(_text(_PAD, y, "Steady rate, thousand events a second", "title"))
    about = f"{options['events']:,} events, {machine['cores']} cores, median and range of {options['runs']} runs"
    body.append(_text(_PAD, y + 20, f"{about}; dashed: loses everything in a crash", "soft"))
    y += 34
    for job, title in _JOBS.items():
        panel, height = _bars(results, job, title, y)
        body += panel
        y += height
    panel, height = _growth(results, y)
    body += panel
    y += height + _PAD // 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" height="{y}">\n'
        "<title>Steady rates of respool and its peers, and how the cost of an event grows</title>\n"
        f"<style>{_STYLE}</style>\n"
        f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{y - 1}" rx="10"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _bars(results: Results, job: str, title: str, top: int) -> tuple[list[str], int]:
    """Return a panel with a bar for each engine, the fastest first, and its height."""
    figures = {name: results.figure(job, name, "steady") for name in results.engines}
    rates = sorted(((name, rate) for name, rate in figures.items() if rate), key=lambda pair: -pair[1].median)
    if not rates:
        return [], 0
    most = max(rate.most for _, rate in rates)
    across = _WIDTH - 2 * _PAD - _NAMES - 120
    body = [_text(_PAD, top + 22, title, "head")]
    y = top + 34
    for name, rate in rates:
        engine = results.engines[name]
        shape = "own" if name == "respool" else "peer" if engine["recovers"] else "floor"
        stopped = any(run.status == "stopped" for run in results.of(job, name))
        body += _bar(engine["title"], rate, shape, y, across / most, " (did not finish)" * stopped)
        y += _STEP
    return body, y - top


def _bar(title: str, rate: Spread, shape: str, y: float, scale: float, note: str) -> list[str]:
    x = _PAD + _NAMES
    middle = y + _BAR / 2
    end = x + max(rate.median * scale, 2)
    body = [
        _text(x - 10, middle + 4.5, title, "head" if shape == "own" else "", "end"),
        f'<rect class="{shape}" x="{x}" y="{y}" width="{end - x:.1f}" height="{_BAR}" rx="2"/>',
    ]
    if rate.least < rate.most:
        left, right = x + rate.least * scale, x + rate.most * scale
        ends = f"M{left:.1f} {middle - 4}v8M{right:.1f} {middle - 4}v8"
        body.append(f'<path class="range" d="M{left:.1f} {middle}H{right:.1f}{ends}"/>')
        end = max(end, right)
    thousand = rate.median / 1000
    figure = f"{thousand:,.0f}" if thousand >= 10 else f"{thousand:,.1f}"
    body.append(_text(end + 8, middle + 4.5, figure + note))
    return body


def _growth(results: Results, top: int) -> tuple[list[str], int]:
    """Return a panel with a line for each job: the cost of an event relative to the smallest size."""
    lines = {job: costs(results.growth, job, "cpu_s_per_million") for job in _JOBS}
    lines = {job: line for job, line in lines.items() if len(line) > 1}
    if not lines:
        return [], 0
    factors = sorted({factor for line in lines.values() for factor in line})
    ratios = {job: {factor: line[factor] / line[min(line)] for factor in line} for job, line in lines.items()}
    most = max(1.5, *(ratio for line in ratios.values() for ratio in line.values()))
    left, right, height = _PAD + _NAMES, _WIDTH - _PAD - 120, 130
    bottom = top + 44 + height
    xs = {factor: left + (right - left) * at / max(len(factors) - 1, 1) for at, factor in enumerate(factors)}
    body = [_text(_PAD, top + 26, "Growth: CPU time of an event, relative to the smallest size", "head")]
    for ratio in (0.0, 0.5, 1.0, 1.5, 2.0):
        if ratio <= most:
            y = bottom - height * ratio / most
            body.append(f'<path class="grid" d="M{left} {y:.1f}H{right}"/>')
            body.append(_text(left - 10, y + 4, f"{ratio:g} ×", "soft", "end"))
    events = {row["factor"]: row["events"] for row in results.growth}
    body += [_text(xs[size], bottom + 20, f"{events[size] / 1e6:g} million", "soft", "middle") for size in factors]
    labels = []
    for (job, line), color in zip(ratios.items(), "abc", strict=False):
        points = [(xs[factor], bottom - height * line[factor] / most) for factor in sorted(line)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        body.append(f'<path class="line {color}" d="M{path}"/>')
        body += [f'<circle class="f{color}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in points]
        labels.append((points[-1][1], f"{job} {line[max(line)]:.2f} ×", color))
    for y, (_, text, color) in zip(_apart([label[0] for label in sorted(labels)]), sorted(labels), strict=True):
        body.append(_text(right + 12, y + 4, text, f"f{color}"))
    return body, bottom + 30 - top


def _apart(ys: Sequence[float]) -> list[float]:
    """Return sorted positions of labels, moved down so that no label hides another."""
    spaced: list[float] = []
    for y in ys:
        spaced.append(max(y, spaced[-1] + 17) if spaced else y)
    return spaced


def _text(x: float, y: float, text: str, shape: str = "", anchor: str = "start") -> str:
    kind = f' class="{shape}"' if shape else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'
