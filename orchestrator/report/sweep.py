"""``sweeps/<study>/report.html``: a sweep in one file that can be sent to a colleague."""

import base64
import html
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import health
from orchestrator.config import Config, task_of, world_of
from orchestrator.files import Careful
from orchestrator.job.spec import write_aside
from orchestrator.provenance import provenance
from orchestrator.report import diagnosis, pictures
from orchestrator.report.pictures import UNFINISHED
from orchestrator.report.rows import Row, rows
from orchestrator.search import confirm, front
from orchestrator.search.base import Ended, nothing_finished
from orchestrator.search.confirm import Confirmed
from orchestrator.search.front import Front
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

STYLE = f"""
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; color: #222; }}
h1 {{ font-size: 1.5em; }} h2 {{ font-size: 1.15em; margin-top: 2em; }}
.verdict {{ font-size: 1.15em; font-weight: 600; }}
img {{ max-width: 100%; }} table {{ border-collapse: collapse; font-size: 12px; }} .wide {{ overflow-x: auto; }}
th, td {{ padding: 2px 8px; text-align: right; border-bottom: 1px solid #e3e3e3; white-space: nowrap; }}
th {{ vertical-align: bottom; background: #fff; }} th.words {{ text-align: left; }}
td.words {{ text-align: left; white-space: normal; min-width: 15em; }}
tr.baseline, b.baseline {{ background: #eaf1fa; }} tr.best, b.best {{ background: #e8f5ee; }}
tr.broken, b.broken {{ background: #fbeceb; }} tr.other, b.other {{ color: #888; }}
b {{ font-weight: 500; padding: 0 4px; }}
p.note {{ color: #555; }} .damaged {{ color: {UNFINISHED}; }}
"""


@dataclass(frozen=True)
class Drawing:
    """A picture of the report."""

    name: str
    title: str
    picture: bytes | None
    """PNG; None where there is only something to say in its place."""
    note: str = ""


@dataclass(frozen=True)
class Study:
    """All that the report is about."""

    folder: Path
    config: Config
    judge: Judge
    rows: Sequence[Row]
    """Of the search."""
    confirmed: Confirmed | None
    described: Front | None
    careful: Careful
    """Knows what could not be read."""

    @property
    def params(self) -> list[str]:
        """Config paths that were searched."""
        assert self.config.sweep is not None
        return [path for path, values in self.config.sweep.params.items() if values is not None]

    @property
    def best(self) -> set[int]:
        """The winner, where none is confirmed the trial that came out best of those that break no constraint; with
        several objectives those on the front."""
        if self.described is not None:
            return set(self.described.on_front)
        return {self.winner} if self.winner is not None else self.best_of_search

    @property
    def winner(self) -> int | None:
        """The trial that was confirmed to be better than the baseline."""
        return self.confirmed.winner if self.confirmed is not None else None

    @property
    def best_is(self) -> str:
        """What ``best`` are called."""
        several, won = self.judge.one is None, self.winner is not None
        return "on the front" if several else "confirmed winner" if won else "best of the search"

    @property
    def best_of_search(self) -> set[int]:
        """The trial that came out best of those that break no constraint, where there is one objective and any."""
        objective = self.judge.one
        known = [row for row in self.rows if row.state == "finished" and row.value is not None and not row.broken]
        if objective is None or not known:
            return set()
        return {max(known, key=lambda row: objective.sign * (row.value or 0.0)).number}


def write(
    folder: Path, config: Config, trials: Sequence[Ended], careful: Careful, pictures_into: Path | None = None
) -> Path:
    """Write the report of a study, from its trials and from what was concluded of them; on demand its pictures as files
    of their own, too. What can't be read is said in its place, and ``careful`` knows it then."""
    judge = Judge(config)
    searched = rows((e for e in trials if not e.trial.confirms), judge, careful)
    confirmed = careful.read(confirm.read, folder / confirm.FILE) if judge.one is not None else None
    described = careful.read(front.read, folder / front.FILE) if judge.one is None else None
    study = Study(folder, config, judge, searched, confirmed, described, careful)
    drawings = list(_drawings(study))
    path = folder / FILE
    write_aside(path, "\n".join(_page(study, drawings)))
    if pictures_into is not None:
        pictures_into.mkdir(parents=True, exist_ok=True)
        for drawing in drawings:
            if drawing.picture is not None:
                (pictures_into / f"{drawing.name}.png").write_bytes(drawing.picture)
    return path


def _drawings(study: Study) -> Iterable[Drawing]:
    config, judge, searched, best = study.config, study.judge, study.rows, study.best
    params, objective = study.params, judge.one
    measured = [f"Eval/{name}" for name in CORRELATED if name in task_of(config).metrics]
    wanted: list[tuple[str, str, bytes | None, str]] = []
    if study.confirmed is not None:
        shown = pictures.confirmation(study.confirmed)
        wanted.append(("confirmation", "Confirmed on fresh seeds?", shown, _seeds(study.confirmed)))
    if study.described is not None:
        wanted.append(("front", "Pareto front", pictures.front(study.described, searched), _axes(study.described)))
    if objective is not None:
        maximize = objective.direction == "maximize"
        shown = pictures.history(searched, objective.metric, best, maximize, study.best_is)
        wanted.append(("trials", "Trials", shown, ""))
    wanted.append(("learning", "Learning", pictures.learning_curves(searched, SUCCESS, best), ""))
    if objective is not None:
        shown = pictures.slices(searched, params, objective.metric, best)
        wanted.append(("slices", "Each searched value alone", shown, ""))
    shown = pictures.correlations(searched, params, measured)
    wanted.append(("correlations", "What the searched values do", shown, CORRELATION))
    yield from (Drawing(name, title, picture, note) for name, title, picture, note in wanted if picture is not None)
    for row in searched:
        if row.folders and (row.number == 0 or row.number == min(best - {0}, default=0)):
            yield from _episodes(study, row)


def _episodes(study: Study, row: Row) -> Iterable[Drawing]:
    file = row.folders[0] / "trajectories.png"
    picture = study.careful.read(pictures.read, file)
    damaged = study.careful.why_not(file)
    if picture is not None or damaged is not None:
        who = "the baseline" if row.number == 0 else f"trial {row.number}"
        note = f"{file.name} could not be read: {damaged}." if damaged else ""
        yield Drawing(f"episodes_{row.number:04d}", f"Episodes of {who}", picture, note)


def _page(study: Study, drawings: Sequence[Drawing]) -> Iterable[str]:
    sweep = study.config.sweep
    assert sweep is not None
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(sweep.name)}</title>"
    yield f"<style>{STYLE}</style><h1>Sweep {html.escape(sweep.name)}</h1>"
    for line in _verdict(study):
        yield f"<p class=verdict>{html.escape(line)}</p>"
    yield from _head(study)
    for drawing in drawings:
        yield f"<h2>{html.escape(drawing.title)}</h2>"
        if drawing.note:
            yield f"<p class={'note' if drawing.picture else 'damaged'}>{html.escape(drawing.note)}</p>"
        if drawing.picture is not None:
            data = base64.b64encode(drawing.picture).decode()
            yield f'<img alt="{html.escape(drawing.title)}" src="data:image/png;base64,{data}">'
    yield from _diagnoses(study.rows)
    yield "<h2>All trials</h2>"
    yield f"<p class=note>{_legend(study)}</p><div class=wide>"
    yield from _table(study)
    yield "</div>"
    yield from _damage(study.careful)
    code = ", ".join(f"{name} {value}" for name, value in provenance().items())
    yield f"<p class=note>Report made by {html.escape(code)}.</p></html>"


def _head(study: Study) -> Iterable[str]:
    """What was tried, and what was looked for."""
    config, judge, searched = study.config, study.judge, study.rows
    counts = Counter(row.state for row in searched)
    states = ", ".join(f"{n} {state}" for state, n in counts.items()) or "none has ended yet"
    yield (
        f"<p>{len(searched)} trial{'s'[: len(searched) != 1]} ({states}), each trained for "
        f"{config.algorithm.iterations} iterations in {config.num_envs} rooms ({html.escape(world_of(config).name)}), "
        f"judged on {config.evaluation.num_rooms} frozen rooms ({html.escape(config.evaluation.set)}) that no training "
        f"sees.</p>"
    )
    examined = study.careful.read(health.noted, study.folder / health.FILE)
    if examined is not None:
        yield f"<p>{html.escape(examined[:1].upper() + examined[1:])}.</p>"
    sought = " and ".join(f"{objective.direction} {objective.metric}" for objective in judge.objectives)
    each = "the mean" if judge.one is not None else "each the mean"
    words = f"Looked for: {sought}, {each} over the last {judge.window} evaluations."
    if judge.constraints:
        broken = [row.number for row in searched if row.broken]
        kept = " and ".join(map(str, judge.constraints))
        which = f": trial {', '.join(map(str, broken))}" if broken else ""
        words += f" Constraint: {kept}; {len(broken)} of the {counts['finished']} finished trials break it{which}."
    yield f"<p>{html.escape(words)}</p>"
    yield (
        "<p class=note>The budget is part of the answer: a config that learns slowly looks bad here, whatever it would "
        "reach in the end. Intervals at trials are over rooms alone; between two trainings of the same config there is "
        "the noise of the seed as well.</p>"
    )


def _verdict(study: Study) -> Iterable[str]:
    nothing = nothing_finished((row.state, row.reason) for row in study.rows)
    if nothing is not None:
        yield nothing[:1].upper() + nothing[1:] + "."
        return
    file = study.folder / (confirm.FILE if study.judge.one is not None else front.FILE)
    why = study.careful.why_not(file)
    if why is not None:
        yield (
            f"{file.name} could not be read: {why}. What the search came to is not known here; the sweep's command, "
            "given again, writes it anew."
        )
    elif study.confirmed is not None:
        words = study.confirmed.words
        yield words[:1].upper() + words[1:] + "."
    elif study.described is not None:
        for line in (front.headline(study.described), front.baseline_stands(study.described)):
            yield line[:1].upper() + line[1:] + "."
    elif study.judge.one is None:
        yield "The Pareto front is told when all trials have ended."
    else:
        yield "Not confirmed on fresh seeds: a difference within the noise of the seed is none."


def _seeds(confirmed: Confirmed) -> str:
    return (
        f"Trained again with seeds {', '.join(map(str, confirmed.seeds))}, which the search never saw; baseline and "
        f"candidates share them, and the rooms. All intervals hold together with {100 * confirmed.confidence:.0f} %."
    )


def _axes(described: Front) -> str:
    better = "; ".join(
        f"{metric}: {'more' if sought.direction == 'maximize' else 'less'} is better"
        for metric, sought in described.objectives.items()
    )
    return (
        f"{better}. Numbers are those of the trials on the front. Hypervolume: how much of what lies between the worst "
        "values and the trials so far has been reached; flat, the search finds nothing new."
    )


def _diagnoses(searched: Sequence[Row]) -> Iterable[str]:
    found = diagnosis.count([row.verdicts for row in searched])
    if not found:
        return
    yield "<h2>What the curves show</h2><table><tr><th class=words>code<th class=words>what it is<th>trials"
    yield "<th class=words>for example"
    for told in found:
        row = next(row for row in searched if row.verdicts.get(told.code) == told.example)
        yield (
            f"<tr><td class=words>{html.escape(told.code)}<td class=words>{diagnosis.MEANING[told.level]}"
            f"<td>{told.trainings}<td class=words>{html.escape(f'trial {row.number}: {told.example}')}"
        )
    yield "</table>"


def _legend(study: Study) -> str:
    """What colours and columns are; HTML."""
    best = study.best_is if study.judge.one is None else f"the {study.best_is}"
    kinds = {"baseline": "the baseline, today's config", "best": best}
    if study.judge.constraints:
        kinds["broken"] = "breaks a constraint"
    kinds["other"] = "did not finish"
    colours = ", ".join(f"<b class={kind}>{words}</b>" for kind, words in kinds.items())
    return (
        f"{colours}. Metrics are means over the last {study.judge.window} evaluations; after them stands what was "
        "searched, and then what the curves warn of."
    )


def _table(study: Study) -> Iterable[str]:
    judge, best = study.judge, study.best
    metrics = [o.metric for o in judge.objectives]
    bounded = [c.metric for c in judge.constraints]
    others = (SUCCESS, *bounded, "Eval/collision_rate", "Eval/time_to_goal", "Eval/action_change")
    further = [metric for metric in dict.fromkeys(others) if metric not in metrics]
    heads = [f"{o.metric} ({o.direction})" for o in judge.objectives]
    bounds = {constraint.metric: str(constraint) for constraint in judge.constraints}
    heads += [bounds.get(metric, metric) for metric in further]
    heads += map(pictures.short, study.params)
    yield "<table><tr><th>trial<th>state<th class=words>remarks"
    yield "".join(f"<th>{html.escape(head).replace(' (', '<br>(')}" for head in heads) + "<th class=words>warnings"
    for row in study.rows:
        kind = "broken" if row.broken else "baseline" if row.number == 0 else "best" if row.number in best else ""
        kind = kind or ("" if row.state == "finished" else "other")
        values = row.values or (None,) * len(metrics)
        cells = [*map(_shown, values), *(_shown(row.metrics.get(m)) for m in further)]
        cells += [_shown(row.params.get(param)) for param in study.params]
        warnings = ", ".join(code for code, words in row.verdicts.items() if words.startswith("warning"))
        yield f"<tr class='{kind}'><td>{row.number}<td>{row.state}<td class=words>{html.escape(_remark(study, row))}"
        yield "".join(f"<td>{html.escape(cell)}" for cell in cells) + f"<td class=words>{html.escape(warnings)}"
    yield "</table>"


def _remark(study: Study, row: Row) -> str:
    words = ["baseline"] if row.number == 0 else []
    if row.number in study.best:
        words.append(study.best_is)
    elif row.number in study.best_of_search:
        words.append("best of the search")
    words += [f"breaks {broken}" for broken in row.broken]
    words += [row.reason] if row.reason else []
    words += [f"{name} could not be read" for name in row.unread]
    return "; ".join(words)


def _damage(careful: Careful) -> Iterable[str]:
    if careful.lines:
        yield "<h2>What could not be read</h2><ul class=damaged>"
        yield from (f"<li>{html.escape(line)}" for line in careful.lines)
        yield "</ul>"


def _shown(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
