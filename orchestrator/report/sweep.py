"""``sweeps/<study>/report.html``: a sweep in one file that can be sent to a colleague."""

import base64
import html
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config import Config, task_of, world_of
from orchestrator.errors import UserError
from orchestrator.job.spec import write_aside
from orchestrator.provenance import provenance
from orchestrator.report import pictures
from orchestrator.report.rows import Row, rows
from orchestrator.search import confirm, front
from orchestrator.search.base import Ended
from orchestrator.search.objective import SUCCESS, Judge

FILE = "report.html"

CORRELATED = (
    "success_rate", "collision_rate", "timeout_rate", "time_to_goal", "path_length", "spl", "min_clearance",
    "action_change", "final_distance",
)  # fmt: skip
"""Metrics whose dependence on what was searched is shown, where the task measures them."""

CORRELATION = (
    "Rank correlation over the finished trials: +1, the metric always rises with the value. Bold: differs from 0 with "
    "95 %, each taken alone; of twenty such numbers one is bold by luck. A sampler moves values together, too."
)

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; color: #222; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; } .verdict { font-size: 1.15em; font-weight: 600; }
img { max-width: 100%; } table { border-collapse: collapse; font-size: 12px; } .wide { overflow-x: auto; }
th, td { padding: 2px 8px; text-align: right; border-bottom: 1px solid #e3e3e3; white-space: nowrap; }
th { position: sticky; top: 0; background: #fff; } td.words { text-align: left; white-space: normal; min-width: 16em; }
tr.baseline { background: #eaf1fa; } tr.best { background: #e8f5ee; } tr.other { color: #888; } p.note { color: #555; }
"""


@dataclass(frozen=True)
class Drawing:
    """A picture of the report."""

    name: str
    title: str
    picture: bytes
    """PNG."""
    note: str = ""


def write(folder: Path, config: Config, trials: Sequence[Ended], pictures_into: Path | None = None) -> Path:
    """Write the report of a study, from its trials and from what was concluded of them; on demand its pictures as files
    of their own, too."""
    judge = Judge(config)
    searched = rows((e for e in trials if not e.trial.confirms), judge)
    confirmed = _read(folder / confirm.FILE)
    described = _read(folder / front.FILE)
    best = _best(searched, judge, confirmed)
    drawings = list(_drawings(config, judge, searched, best, confirmed, described))
    path = folder / FILE
    write_aside(path, "\n".join(_page(config, judge, searched, best, drawings, _verdict(confirmed, described))))
    if pictures_into is not None:
        pictures_into.mkdir(parents=True, exist_ok=True)
        for drawing in drawings:
            (pictures_into / f"{drawing.name}.png").write_bytes(drawing.picture)
    return path


def _best(searched: Sequence[Row], judge: Judge, confirmed: Mapping[str, Any] | None) -> int | None:
    """The winner; where none is confirmed, the trial that came out best of those that break no constraint."""
    if confirmed is not None and confirmed["winner"] is not None:
        return int(confirmed["winner"])
    objective = judge.one
    known = [row for row in searched if row.state == "finished" and row.value is not None and not row.broken]
    if objective is None or not known:
        return None
    return max(known, key=lambda row: objective.sign * (row.value or 0.0)).number


def _drawings(
    config: Config,
    judge: Judge,
    searched: Sequence[Row],
    best: int | None,
    confirmed: Mapping[str, Any] | None,
    described: Mapping[str, Any] | None,
) -> Iterable[Drawing]:
    assert config.sweep is not None
    params, objective = list(config.sweep.params), judge.one
    measured = [f"Eval/{name}" for name in CORRELATED if name in task_of(config).metrics]
    wanted: list[tuple[str, str, bytes | None, str]] = []
    if confirmed is not None:
        shown = pictures.confirmation(confirmed)
        wanted.append(("confirmation", "Confirmed on fresh seeds?", shown, _seeds(confirmed)))
    if described is not None:
        wanted.append(("front", "Pareto front", pictures.front(described, searched), ""))
    if objective is not None:
        shown = pictures.history(searched, objective.metric, best, objective.direction == "maximize")
        wanted.append(("trials", "Trials", shown, ""))
    wanted.append(("learning", "Learning", pictures.learning_curves(searched, SUCCESS, best), ""))
    if objective is not None:
        shown = pictures.slices(searched, params, objective.metric, best)
        wanted.append(("slices", "Each searched value alone", shown, ""))
    shown = pictures.correlations(searched, params, measured)
    wanted.append(("correlations", "What the searched values do", shown, CORRELATION))
    for row in searched:
        picture = row.folders[0] / "trajectories.png" if row.number in (0, best) and row.folders else None
        if picture is not None and picture.exists():
            who = "baseline" if row.number == 0 else f"trial {row.number}"
            name = f"episodes_{row.number:04d}"
            wanted.append((name, f"Episodes of {'the ' if row.number == 0 else ''}{who}", picture.read_bytes(), ""))
    return (Drawing(name, title, picture, note) for name, title, picture, note in wanted if picture is not None)


def _page(
    config: Config, judge: Judge, searched: Sequence[Row], best: int | None, drawings: Sequence[Drawing], verdict: str
) -> Iterable[str]:
    sweep = config.sweep
    assert sweep is not None
    counts = Counter(row.state for row in searched)
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(sweep.name)}</title>"
    yield f"<style>{STYLE}</style><h1>Sweep {html.escape(sweep.name)}</h1>"
    yield f"<p class=verdict>{html.escape(verdict)}</p>"
    yield (
        f"<p>{len(searched)} trials ({', '.join(f'{n} {state}' for state, n in counts.items())}), each trained for "
        f"{config.algorithm.iterations} iterations in {config.num_envs} rooms ({html.escape(world_of(config).name)}), "
        f"judged on {config.evaluation.num_rooms} frozen rooms ({html.escape(config.evaluation.set)}) that no training "
        f"sees. Objectives are means over the last {judge.window} evaluations.</p>"
    )
    yield (
        "<p class=note>The budget is part of the answer: a config that learns slowly looks bad here, whatever it would "
        "reach in the end. Intervals at trials are over rooms alone; between two trainings of the same config there is "
        "the noise of the seed as well.</p>"
    )
    for drawing in drawings:
        yield f"<h2>{html.escape(drawing.title)}</h2>"
        if drawing.note:
            yield f"<p class=note>{html.escape(drawing.note)}</p>"
        data = base64.b64encode(drawing.picture).decode()
        yield f'<img alt="{html.escape(drawing.title)}" src="data:image/png;base64,{data}">'
    yield from _diagnoses(searched)
    yield "<h2>All trials</h2><div class=wide>"
    yield from _table(searched, judge, list(sweep.params), best)
    yield "</div>"
    code = ", ".join(f"{name} {value}" for name, value in provenance().items())
    yield f"<p class=note>Report made by {html.escape(code)}.</p></html>"


def _verdict(confirmed: Mapping[str, Any] | None, described: Mapping[str, Any] | None) -> str:
    if confirmed is not None:
        words = str(confirmed["words"])
        return words[:1].upper() + words[1:] + "."
    if described is not None:
        return front.lines(described)[0]
    return "Not confirmed on fresh seeds: a difference within the noise of the seed is none."


def _seeds(confirmed: Mapping[str, Any]) -> str:
    return (
        f"Trained again with seeds {', '.join(map(str, confirmed['seeds']))}, which the search never saw; baseline and "
        f"candidates share them, and the rooms. All intervals hold together with {100 * confirmed['confidence']:.0f} %."
    )


def _diagnoses(searched: Sequence[Row]) -> Iterable[str]:
    found = Counter(code for row in searched for code in row.verdicts)
    if not found:
        return
    yield "<h2>What the curves show</h2><table><tr><th>code<th>trials<th>for example"
    for code, count in found.most_common():
        row = next(row for row in searched if code in row.verdicts)
        words = f"trial {row.number}: {row.verdicts[code]}"
        yield f"<tr><td>{html.escape(code)}<td>{count}<td class=words>{html.escape(words)}"
    yield "</table>"


def _table(searched: Sequence[Row], judge: Judge, params: Sequence[str], best: int | None) -> Iterable[str]:
    metrics = [o.metric for o in judge.objectives]
    further = [
        m for m in (SUCCESS, "Eval/collision_rate", "Eval/time_to_goal", "Eval/action_change") if m not in metrics
    ]
    heads = ["trial", "state", *metrics, *further, *map(pictures.short, params), "curves", "reason"]
    yield "<table><tr>" + "".join(f"<th>{html.escape(head)}" for head in heads)
    for row in searched:
        kind = "baseline" if row.number == 0 else "best" if row.number == best else ""
        kind = kind or ("" if row.state == "finished" else "other")
        values = row.values or (None,) * len(metrics)
        cells = [str(row.number), row.state, *map(_shown, values), *(_shown(row.metrics.get(m)) for m in further)]
        cells += [_shown(row.params.get(param)) for param in params]
        words = [
            ", ".join(c for c, w in row.verdicts.items() if w.startswith("warning")),
            row.reason or (f"breaks {', '.join(row.broken)}" if row.broken else ""),
        ]
        yield f"<tr class='{kind}'>" + "".join(f"<td>{html.escape(cell)}" for cell in cells)
        yield "".join(f"<td class=words>{html.escape(word)}" for word in words)
    yield "</table>"


def _shown(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _read(path: Path) -> Mapping[str, Any] | None:
    if not path.exists():
        return None
    try:
        read = json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path}: damaged: {error}") from error
    assert isinstance(read, dict)
    return read
