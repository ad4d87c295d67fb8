"""The pictures of a sweep's report, as PNG bytes; each function returns None where there is nothing to draw."""

import io
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from orchestrator.files import Damaged
from orchestrator.report.rows import Row, spearman
from orchestrator.search.confirm import Confirmed
from orchestrator.search.front import Front

BASELINE, BEST, OTHER, BROKEN, UNFINISHED = "#1f5fa8", "#1a8a55", "#9aa0a6", "#d9822b", "#c23b33"
SO_FAR = "#555555"

Picture = bytes | None


def read(path: Path) -> bytes:
    """A picture of a trial's folder. Raises FileNotFoundError, or Damaged."""
    try:
        data = path.read_bytes()
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except FileNotFoundError:
        raise
    except Exception as error:  # Pillow raises whatever the damage leads to
        raise Damaged(path, f"expected a picture ({type(error).__name__})") from error
    return data


def history(rows: Sequence[Row], name: str, best: Collection[int], maximize: bool, best_is: str) -> Picture:
    """The objective of each trial, with its 95 % interval over rooms where that is known, and the best so far;
    ``best_is``: what those that came out best are called."""
    known = [row for row in rows if row.value is not None]
    if not known:
        return None
    figure, (axes,) = _figure(9, 3.4)
    for row in known:
        colour = _colour(row, best)
        low, high = row.interval if row.interval else (row.value, row.value)
        axes.plot([row.number, row.number], [low, high], color=colour, alpha=0.4, linewidth=2)
        axes.plot(row.number, row.value, _marker(row), color=colour, markersize=6)
    finished = [row for row in known if row.state == "finished" and not row.broken]
    if finished:
        so_far = (np.maximum if maximize else np.minimum).accumulate([row.value or 0.0 for row in finished])
        axes.step(
            [row.number for row in finished],
            so_far,
            where="post",
            color=SO_FAR,
            linewidth=1,
            label="best of the search so far",
        )
    baseline = next((row for row in known if row.number == 0), None)
    if baseline is not None:
        axes.axhline(baseline.value, color=BASELINE, linewidth=1, linestyle="--", label="the baseline's")
    axes.set_xlabel("trial" + (" (x: stopped early)" if any(row.state != "finished" for row in known) else ""))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(f"{name} (more is better)" if maximize else f"{name} (less is better)")
    _explain(axes, known, best, best_is)
    return _png(figure)


def learning_curves(rows: Sequence[Row], name: str, best: Collection[int]) -> Picture:
    """A rate of every trial over the iterations."""
    drawn = [row for row in rows if row.curves.get(name)]
    if not drawn:
        return None
    figure, (axes,) = _figure(9, 3.4)
    for row in sorted(drawn, key=lambda row: row.number == 0 or row.number in best):
        steps, values = zip(*row.curves[name], strict=True)
        emphasised = row.number == 0 or row.number in best
        label = {0: "baseline (trial 0)"}.get(row.number, f"trial {row.number}") if emphasised else None
        colour = _colour(row, best) if emphasised else OTHER
        axes.plot(
            steps,
            values,
            "o-" if len(steps) < 3 else "-",
            color=colour,
            alpha=1 if emphasised else 0.5,
            linewidth=2 if emphasised else 1,
            label=label,
        )
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(name)
    axes.set_ylim(-0.02, 1.02)
    if len(drawn) > sum(row.number == 0 or row.number in best for row in drawn):
        axes.plot([], [], color=OTHER, alpha=0.5, linewidth=1, label="another trial")
    _legend(axes)
    return _png(figure)


def slices(rows: Sequence[Row], params: Sequence[str], name: str, best: Collection[int]) -> Picture:
    """The objective over each searched value alone, whatever the others were; with fewer than five trials there is
    nothing to be seen."""
    known = [row for row in rows if row.value is not None and row.state == "finished" and row.params]
    numeric = [p for p in params if all(isinstance(row.params.get(p), int | float) for row in known)]
    if len(known) < 5 or not numeric:
        return None
    columns = min(5, len(numeric))
    height = -(-len(numeric) // columns)
    figure, axes = _figure(2.3 * columns, 2.1 * height, height, columns)
    for ax, param in zip(axes, numeric, strict=False):
        for row in known:
            ax.plot(row.params[param], row.value, "o", color=_colour(row, best), markersize=4, alpha=0.8)
        ax.set_title(short(param), fontsize=8)
        ax.tick_params(labelsize=7)
    for ax in axes[len(numeric) :]:
        ax.set_visible(False)
    axes[0].set_ylabel(name, fontsize=8)
    return _png(figure)


def correlations(rows: Sequence[Row], params: Sequence[str], metrics: Sequence[str]) -> Picture:
    """Spearman's rank correlation of each searched value with each metric; bold: 95 % sure not to be 0, each alone."""
    finished = [row for row in rows if row.state == "finished" and row.params]
    params = [p for p in params if all(isinstance(row.params.get(p), int | float) for row in finished)]
    if len(finished) < 8 or not params:
        return None
    figure, (axes,) = _figure(1.0 + 1.05 * len(metrics), 1.2 + 0.34 * len(params))
    table = np.full((len(params), len(metrics)), np.nan)
    for i, param in enumerate(params):
        for j, metric in enumerate(metrics):
            rho, sure = spearman([r.params[param] for r in finished], [r.metrics.get(metric) for r in finished])
            table[i, j] = rho
            if not np.isnan(rho):
                weight, colour = ("bold", "black") if sure else ("normal", "#777")
                axes.text(j, i, f"{rho:+z.2f}", ha="center", va="center", fontsize=8, fontweight=weight, color=colour)
    axes.imshow(table, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", alpha=0.6)
    axes.set_xticks(range(len(metrics)), [m.partition("/")[2].replace("_", "\n", 1) for m in metrics], fontsize=8)
    axes.set_yticks(range(len(params)), [short(p) for p in params], fontsize=8)
    axes.grid(False)
    return _png(figure)


def confirmation(confirmed: Confirmed) -> Picture:
    """Differences from the baseline on fresh seeds: each seed's, their mean, and its interval."""
    compared = [c for c in confirmed.comparisons if None not in (c.difference, c.low, c.high)]
    if not compared:
        return None
    figure, (axes,) = _figure(9, 0.9 + 0.6 * len(compared))
    for k, c in enumerate(compared):
        colour = BEST if c.verdict == "better" else UNFINISHED if c.verdict == "worse" else OTHER
        axes.plot([c.low, c.high], [k, k], color=colour, linewidth=3, alpha=0.6)
        axes.plot(c.difference, k, "o", color=colour, markersize=8)
        each = [c.values[seed] - confirmed.baseline[seed] for seed in c.values if seed in confirmed.baseline]
        axes.plot(each, [k + 0.22] * len(each), "|", color="black", markersize=7)
    axes.axvline(0, color=BASELINE, linewidth=1, linestyle="--")
    axes.set_yticks(range(len(compared)), [f"trial {c.trial}" for c in compared])
    axes.set_ylim(-0.6, len(compared) - 0.4)
    better = "right" if confirmed.direction == "maximize" else "left"
    axes.set_xlabel(f"{confirmed.objective} minus the baseline's; better to the {better} (strokes: one seed each)")
    return _png(figure)


def front(described: Front, rows: Sequence[Row]) -> Picture:
    """Every pair of objectives: all trials, and those on the front; and the hypervolume over trials."""
    names = list(described.objectives)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    points = [row for row in rows if row.values is not None and len(row.values) == len(names)]
    if not points:
        return None
    columns = min(2, len(pairs) + 1)
    height = -(-(len(pairs) + 1) // columns)
    figure, axes = _figure(4.5 * columns, 3.0 * height, height, columns)
    on_front = set(described.on_front)
    for ax, (a, b) in zip(axes, pairs, strict=False):
        for row in sorted(points, key=lambda row: row.number in on_front):  # these on top
            assert row.values is not None
            place = (row.values[names.index(a)], row.values[names.index(b)])
            ax.plot(*place, _marker(row), color=_colour(row, on_front), markersize=5)
            if row.number in on_front:
                ax.annotate(str(row.number), place, fontsize=7, xytext=(3, 3), textcoords="offset points")
        ax.set_xlabel(f"{a} ({described.objectives[a].direction})", fontsize=8)
        ax.set_ylabel(f"{b} ({described.objectives[b].direction})", fontsize=8)
        ax.tick_params(labelsize=7)
    volumes, ax = described.hypervolume.by_trial, axes[len(pairs)]
    ax.step(list(volumes), list(volumes.values()), "o-", where="post", color=BEST, markersize=3)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("trial", fontsize=8)
    ax.set_ylabel("hypervolume", fontsize=8)
    ax.set_ylim(bottom=0)
    ax.tick_params(labelsize=7)
    for ax in axes[len(pairs) + 1 :]:
        ax.set_visible(False)
    _explain(axes[0], points, on_front, "on the front")
    return _png(figure)


def short(path: str) -> str:
    """A config path as people say it: the last part that isn't ``weight``."""
    parts = [part for part in path.split(".") if part not in ("task", "rewards", "weight", "algorithm", "params")]
    return ".".join(parts) or path


def _kind(row: Row, best: Collection[int], best_is: str) -> str:
    """What a trial is, as the legend has it."""
    if row.number == 0:
        return "baseline (trial 0)"
    if row.number in best:
        return best_is
    if row.state != "finished":
        return "did not finish"
    return "breaks a constraint" if row.broken else "another trial"


def _colour(row: Row, best: Collection[int]) -> str:
    colours = {"baseline (trial 0)": BASELINE, "": BEST, "did not finish": UNFINISHED, "breaks a constraint": BROKEN}
    return colours.get(_kind(row, best, ""), OTHER)


def _marker(row: Row) -> str:
    return "s" if row.broken else "o" if row.state == "finished" else "x"


def _explain(axes: Any, rows: Iterable[Row], best: Collection[int], best_is: str) -> None:
    """A legend of the trials beside what has one already."""
    lines = {_kind(row, best, best_is): (_marker(row), _colour(row, best)) for row in rows}
    for label, (marker, colour) in lines.items():
        axes.plot([], [], marker, color=colour, label=label)
    _legend(axes)


def _legend(axes: Any) -> None:
    """Beside all axes of its figure."""
    axes.get_figure().legend(*axes.get_legend_handles_labels(), fontsize=8, loc="outside right upper", frameon=False)


def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(np.atleast_1d(figure.subplots(rows, columns)).ravel())
    for ax in axes:
        ax.grid(alpha=0.25)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    return figure, axes


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
