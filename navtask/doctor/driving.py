"""Whether actions do what their range says, and obstacles are as solid as they look."""

from collections.abc import Mapping

import torch

from navtask.doctor.finding import FAIL, NOT_ALIKE, PASS, UNKNOWN, Finding, Outcome
from navtask.doctor.patient import Copy, Patient, action_range, columns
from navtask.doctor.running import Drive

LEVELS = torch.tensor([-1.0, -0.8, -0.5, -0.25, -0.1, 0.1, 0.25, 0.5, 0.8, 1.0])
"""Shares of the range, from its middle."""
HELD = 2
"""Control steps that each level is held for: one, and one more for whoever is a step late."""
ROOMS = 16


def range_used(patient: Patient, before: Mapping[str, Finding]) -> Outcome:
    """Equal copies are given an action of one axis at different levels: from small to full, more must do more, and as
    much on every axis."""
    if before["reset consistency"].verdict != PASS:
        return UNKNOWN, NOT_ALIKE
    probe = patient.copy(rooms=ROOMS)
    if not hasattr(probe.env, "action_range"):
        return UNKNOWN, "declares no action_range"
    names = list(getattr(probe.env, "action_names", [str(axis) for axis in range(probe.axes)]))
    base, going = _held(probe, None, 0.0)
    patient.give_back()
    for axis, name in enumerate(names):
        rows = []
        for level in LEVELS.tolist():
            observation, on = _held(patient.copy(rooms=ROOMS), axis, level)
            rows.append(observation - base)
            going &= on
            patient.give_back()
        verdict = _curve(torch.stack(rows)[:, going], name)
        if verdict is not None:
            return verdict
    return _gains(patient, names)


def _held(copy: Copy, axis: int | None, level: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(N, W) observation after holding one axis at a level, and (N,) rooms that went on."""
    low, high = action_range(copy)
    action = torch.full((copy.rooms, copy.axes), (low + high) / 2)
    if axis is not None:
        action[:, axis] += level * (high - low) / 2
    on = torch.ones(copy.rooms, dtype=torch.bool)
    for _ in range(HELD):
        now = copy.step(action)
        on &= ~now.done
    return now.observation, on


def _curve(response: torch.Tensor, name: str) -> Outcome | None:
    """Judge (levels, rooms, W) by the value that tells the level best; None where nothing is wrong with it."""
    if response.shape[1] < ROOMS / 4:
        return UNKNOWN, "too few rooms go on under a held action"
    # Squared correlation of each value with the level, over all rooms.
    level = LEVELS.view(-1, 1, 1) / LEVELS.std(correction=0)
    centred = response - response.mean((0, 1))
    power = centred.square().mean((0, 1))
    told = (centred * level).mean((0, 1)).square() / power.clamp(min=1e-10)
    best = int(told.argmax())
    if told[best] < 0.5:
        return FAIL if power.max() < 1e-10 else UNKNOWN, f"no value of the observation tells what {name} does"
    curve = response[:, :, best].mean(1)
    half = len(LEVELS) // 2
    for side in (curve[half:], curve[:half].flip(0)):
        levels = LEVELS[half:]
        middle = (side[2] / levels[2]).item()  # effect per unit of action, at half of it
        small, large = (side[0] / levels[0]).item(), ((side[4] - side[3]) / (levels[4] - levels[3])).item()
        per_unit = side / levels
        steepest = per_unit.abs().max().item()
        if abs(small) < 0.3 * steepest:
            return FAIL, f"{name}: an action of {levels[0]:g} has {abs(small) / steepest:.0%} of the effect of its size"
        if abs(large) < 0.3 * abs(middle):
            share = abs(large) / max(abs(middle), 1e-12)
            return (
                FAIL,
                f"{name}: from {levels[3]:g} to {levels[4]:g} an action gains {share:.0%} of what its size says",
            )
    gain = (curve[-1].abs() / curve[0].abs().clamp(min=1e-12)).item()
    if not 0.67 < gain < 1.5:
        return FAIL, f"{name}: full ahead does {gain:.2f} times what full reverse does"
    return None


def _gains(patient: Patient, names: list[str]) -> Outcome:
    """Compare what a full action of each axis does, where the environment says which values show it."""
    copy = patient.copy(rooms=ROOMS)
    shown = columns(copy) or {}
    at = {axis: where.start + k for where, term in shown.values() for k, axis in enumerate(term.answers)}
    missing = [name for name in names if name not in at]
    if missing:
        return UNKNOWN, f"every axis has its whole range; not told which value shows the effect of {missing[0]}"
    gains = {}
    for axis, name in enumerate(names):
        observation, on = _held(patient.copy(rooms=ROOMS), axis, 1.0)
        gains[name] = observation[on, at[name]].median().item()
        patient.give_back()
    told = ", ".join(f"{name} {gain:.2f}" for name, gain in gains.items())
    if min(gains.values()) < 0.8 or max(gains.values()) > 1.25:
        return FAIL, f"a full action does, of what it should: {told}"
    return PASS, f"a full action does, of what it should: {told}"


# -- obstacles -------------------------------------------------------------------------------------------------------

LEAST_HITS = 15
INSIDE, CLEAR = 0.6, 1.8
"""Of the range at which collisions end episodes: below the first a body is inside of what it sees, above the second it
has hit something that it doesn't see."""
HOLLOW = 0.01
"""Of the usual range: no body is so thin."""
NEIGHBOURS = 5 / 72
"""Of a whole turn: a wall or a corner fills such an arc, noise and drop-outs don't."""
FEWEST = 24
"""Beams between which a thing of the body's size can't hide."""
NOISIEST = 0.65
"""Of the range at collisions: what a scan may vary by at rest. Beyond it, by noise or drop-outs, its nearest value says
little of what is there: at three quarters healthy environments begin to look hollow."""


def _drive(patient: Patient, before: Mapping[str, Finding]) -> tuple[torch.Tensor, torch.Tensor] | str:
    """Nearest ranges at collisions and at instants that ended nothing; or why that can't be seen."""
    for check in ("instants", "reward instant", "truncation"):
        if before[check].verdict == FAIL:
            return f"not before '{check}' is mended"
    return patient.once(_nearest)


def _nearest(patient: Patient) -> tuple[torch.Tensor, torch.Tensor] | str:
    drive = patient.once(Drive.of)
    scans = [where for where, term in (columns(drive.copy) or {}).values() if term.ranges]
    if not scans:
        return "not told which values are ranges"
    hit, free = [], []
    for now in drive.instants:
        if now.success is None or now.time_out is None or now.final is None:
            return "not told success, time_outs and final_obs"
        near = _smooth(now.final[:, scans[0]]).amin(-1)
        hit.append(near[now.done & ~now.success & ~now.time_out])
        free.append(near[~now.done])
    hits = torch.cat(hit)
    if len(hits) < LEAST_HITS:
        return f"only {len(hits)} collisions"
    beams = scans[0].stop - scans[0].start
    if beams < FEWEST:
        return f"a scan of {beams} beams leaves room for what it doesn't show"
    noise, touch = _noise(patient, scans[0]), hits.quantile(0.25).item()
    if noise > NOISIEST * touch:
        return f"the scan of a body at rest varies by {noise:.2g}, at collisions it shows {touch:.2g}"
    return hits, torch.cat(free)


def _noise(patient: Patient, scan: slice) -> float:
    """By how much the ranges of bodies at rest vary from step to step: the upper quartile."""
    copy = patient.copy()
    seen = [_smooth(copy.step(copy.idle()).observation[:, scan]) for _ in range(4)]
    return (seen[3] - seen[2]).abs().quantile(0.75).item()


def _smooth(scan: torch.Tensor) -> torch.Tensor:
    """(N, beams) the middle one of each range and its neighbours."""
    half = round(NEIGHBOURS * scan.shape[-1]) // 2
    return torch.stack([scan.roll(k, -1) for k in range(-half, half + 1)]).median(0).values


def solid(patient: Patient, before: Mapping[str, Finding]) -> Outcome:
    """Nothing gets inside of what its scan shows."""
    found = _drive(patient, before)
    if isinstance(found, str):
        return UNKNOWN, found
    hits, free = found
    touch = hits.quantile(0.25).item()
    if touch < HOLLOW * free.median().item():
        return FAIL, f"collisions are told at a range of {touch:.2g} only: in the middle of the body"
    inside = int((free < INSIDE * touch).sum()) + int((hits < INSIDE * touch).sum())
    figure = f"{inside} instants inside of what the scan shows, {len(hits)} collisions at a range of {touch:.3f}"
    return (FAIL if inside > 0.02 * len(hits) + 1 else PASS), figure


def seen(patient: Patient, before: Mapping[str, Finding]) -> Outcome:
    """Nothing is hit that the scan doesn't show."""
    found = _drive(patient, before)
    if isinstance(found, str):
        return UNKNOWN, found
    hits, _ = found
    touch = hits.quantile(0.25).item()
    blind = int((hits > CLEAR * touch).sum())
    figure = f"{blind} of {len(hits)} collisions with nothing within {CLEAR * touch:.3f} on the scan"
    return (FAIL if blind > 0.03 * len(hits) + 1 else PASS), figure
