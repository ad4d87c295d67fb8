"""The pictures of a sweep's report, as PNG bytes; each function returns None where there is nothing to draw."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from orchestrator.report.rows import Row, spearman

BASELINE, BEST, OTHER, BAD = "#1f5fa8", "#1a8a55", "#9aa0a6", "#c23b33"

Picture = bytes | None


def history(rows: Sequence[Row], name: str, best: int | None, maximize: bool) -> Picture:
    """The objective of each trial, with the 95 % interval of its last evaluation, and the best so far."""
    known = [row for row in rows if row.value is not None]
    if not known:
        return None
    figure, (axes,) = _figure(9, 3.4)
    for row in known:
        colour = _colour(row, best)
        low, high = row.interval if row.interval else (row.value, row.value)
        axes.plot([row.number, row.number], [low, high], color=colour, alpha=0.4, linewidth=2)
        marker = "o" if row.state == "finished" else "x"
        axes.plot(row.number, row.value, marker, color=colour, markersize=6)
    finished = [row for row in known if row.state == "finished" and not row.broken]
    if finished:
        so_far = (np.maximum if maximize else np.minimum).accumulate([row.value or 0.0 for row in finished])
        axes.step([row.number for row in finished], so_far, where="post", color=BEST, linewidth=1, label="best so far")
    baseline = next((row for row in known if row.number == 0), None)
    if baseline is not None:
        axes.axhline(baseline.value, color=BASELINE, linewidth=1, linestyle="--", label="baseline (trial 0)")
    axes.set_xlabel("trial (x: stopped early)")
    axes.set_ylabel(name)
    axes.legend(fontsize=8, loc="lower right")
    return _png(figure)


def learning_curves(rows: Sequence[Row], name: str, best: int | None) -> Picture:
    """A metric of every trial over the iterations."""
    drawn = [row for row in rows if row.curves.get(name)]
    if not drawn:
        return None
    figure, (axes,) = _figure(9, 3.4)
    for row in sorted(drawn, key=lambda row: row.number in (0, best)):
        steps, values = zip(*row.curves[name], strict=True)
        emphasised = row.number in (0, best)
        label = {0: "baseline"}.get(row.number, f"trial {row.number}") if emphasised else None
        colour = _colour(row, best) if emphasised else OTHER
        axes.plot(
            steps, values, color=colour, alpha=1 if emphasised else 0.5, linewidth=2 if emphasised else 1, label=label
        )
    axes.set_xlabel("iteration")
    axes.set_ylabel(name)
    axes.legend(fontsize=8, loc="lower right")
    return _png(figure)


def slices(rows: Sequence[Row], params: Sequence[str], name: str, best: int | None) -> Picture:
    """The objective over each searched value alone, whatever the others were."""
    known = [row for row in rows if row.value is not None and row.state == "finished"]
    numeric = [p for p in params if all(isinstance(row.params.get(p), int | float) for row in known)]
    if len(known) < 3 or not numeric:
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
    finished = [row for row in rows if row.state == "finished"]
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
                axes.text(j, i, f"{rho:+.2f}", ha="center", va="center", fontsize=8, fontweight=weight, color=colour)
    axes.imshow(table, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", alpha=0.6)
    axes.set_xticks(range(len(metrics)), [m.partition("/")[2].replace("_", "\n", 1) for m in metrics], fontsize=8)
    axes.set_yticks(range(len(params)), [short(p) for p in params], fontsize=8)
    axes.grid(False)
    return _png(figure)


def confirmation(confirmed: Mapping[str, Any]) -> Picture:
    """Differences from the baseline on fresh seeds: each seed's, their mean, and its interval."""
    compared = [c for c in confirmed["comparisons"] if c["difference"] is not None]
    if not compared:
        return None
    figure, (axes,) = _figure(9, 0.9 + 0.6 * len(compared))
    for k, c in enumerate(compared):
        colour = BEST if c["verdict"] == "better" else BAD if c["verdict"] == "worse" else OTHER
        axes.plot([c["low"], c["high"]], [k, k], color=colour, linewidth=3, alpha=0.6)
        axes.plot(c["difference"], k, "o", color=colour, markersize=8)
        each = [
            c["values"][seed] - confirmed["baseline"][seed] for seed in c["values"] if seed in confirmed["baseline"]
        ]
        axes.plot(each, [k + 0.22] * len(each), "|", color="black", markersize=7)
    axes.axvline(0, color=BASELINE, linewidth=1, linestyle="--")
    axes.set_yticks(range(len(compared)), [f"trial {c['trial']}" for c in compared])
    axes.set_ylim(-0.6, len(compared) - 0.4)
    axes.set_xlabel(f"{confirmed['objective']} minus the baseline's (strokes: one seed each)")
    return _png(figure)


def front(described: Mapping[str, Any], rows: Sequence[Row]) -> Picture:
    """Every pair of objectives: all trials, and those on the front; and the hypervolume over trials."""
    names = list(described["objectives"])
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    points = [row for row in rows if row.values is not None and row.state == "finished"]
    if not points:
        return None
    figure, axes = _figure(3.2 * (len(pairs) + 1), 3.0, 1, len(pairs) + 1)
    on_front = {point["trial"] for point in described["front"]}
    for ax, (a, b) in zip(axes, pairs, strict=False):
        for row in points:
            assert row.values is not None
            colour = BASELINE if row.number == 0 else BEST if row.number in on_front else OTHER
            ax.plot(row.values[names.index(a)], row.values[names.index(b)], "o", color=colour, markersize=5)
            if row.number in on_front:
                place = (row.values[names.index(a)], row.values[names.index(b)])
                ax.annotate(str(row.number), place, fontsize=7, xytext=(3, 3), textcoords="offset points")
        ax.set_xlabel(f"{a} ({described['objectives'][a]['direction']})", fontsize=8)
        ax.set_ylabel(f"{b} ({described['objectives'][b]['direction']})", fontsize=8)
        ax.tick_params(labelsize=7)
    volumes = described["hypervolume"]["by_trial"]
    axes[-1].step([int(n) for n in volumes], list(volumes.values()), where="post", color=BEST)
    axes[-1].set_xlabel("trial", fontsize=8)
    axes[-1].set_ylabel("hypervolume", fontsize=8)
    axes[-1].tick_params(labelsize=7)
    return _png(figure)


def short(path: str) -> str:
    """A config path as people say it: the last part that isn't ``weight``."""
    parts = [part for part in path.split(".") if part not in ("task", "rewards", "weight", "algorithm", "params")]
    return ".".join(parts) or path


def _colour(row: Row, best: int | None) -> str:
    if row.number == 0:
        return BASELINE
    if row.number == best:
        return BEST
    return OTHER if row.state == "finished" else BAD


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
