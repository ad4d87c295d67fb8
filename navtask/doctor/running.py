"""Whether the environment runs at all as a vectorised environment must: sane numbers, repeatable, rooms apart."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from navtask.doctor.finding import FAIL, NOT_ALIKE, PASS, UNKNOWN, Finding, Outcome
from navtask.doctor.patient import Copy, Driver, Instant, Patient
from navtask.doctor.raised import told

STEPS, REPEATED = 260, 60
"""Control steps of the drive, and those of them that are driven once more."""
LARGEST = 1e3
"""Of an observation's values; terms are of order one."""


@dataclass
class Drive:
    """A long drive through all rooms: random actions over the whole range, some beyond it, and steady pushes."""

    copy: Copy
    first: torch.Tensor
    """(N, W) the observation it began with."""
    actions: list[torch.Tensor]
    """(N, A)"""
    instants: list[Instant]
    """What each action led to."""

    @classmethod
    def of(cls, patient: Patient) -> "Drive":
        """From the start on."""
        copy = patient.copy()
        driver = Driver(copy, patient.seed)
        first = copy.observe()
        actions = [driver.uniform() if step % 26 < 4 else driver.push() for step in range(STEPS)]
        actions[::26] = [3.0 * action for action in actions[::26]]
        return cls(copy, first, actions, [copy.step(action) for action in actions])


def stress(patient: Patient, _before: Mapping[str, Finding]) -> Outcome:
    """Actions over the whole range and beyond: shapes as declared, numbers finite and of a sane size."""
    drive = patient.once(Drive.of)
    copy, width = drive.copy, drive.first.shape[-1]
    declared = _declared_width(copy)
    if declared is not None and declared != width:
        return FAIL, f"the observation is {width} wide, its terms declare {declared}"
    room_steps = STEPS * copy.rooms
    for name in ("observation", "reached", "reward", "done"):
        shape = (copy.rooms, width) if name in ("observation", "reached") else (copy.rooms,)
        told = "final_obs" if name == "reached" else name
        for step, now in enumerate(drive.instants):
            if getattr(now, name).shape != shape:
                return FAIL, f"step {step + 1}: {told} is {tuple(getattr(now, name).shape)}, not {shape}"
        bad = sum(int((~getattr(now, name).isfinite().view(copy.rooms, -1).all(-1)).sum()) for now in drive.instants)
        if bad:
            return FAIL, f"{told} not finite in {bad} of {room_steps} room-steps"
    largest = max(now.reached.abs().max().item() for now in drive.instants)
    if largest > LARGEST:
        return FAIL, f"observation as large as {largest:.3g}"
    statistics = _statistics(copy)
    dropped = statistics.get("Physics/dropped", 0.0)
    if dropped:
        return FAIL, f"contact buffers were full {dropped:.0f} times in {room_steps} room-steps"
    diverged = statistics.get("Episode_Termination/diverged", 0.0)
    if diverged:
        return FAIL, f"{diverged:.1%} of the episodes ended with a state that is not finite"
    return PASS, f"{room_steps} room-steps, largest observation {largest:.3g}"


def _declared_width(copy: Copy) -> int | None:
    if not hasattr(copy.env, "terms"):
        return None
    ends = [max((term.start + term.width for term in terms), default=0) for terms in copy.env.terms().values()]
    return sum(ends)


def _statistics(copy: Copy) -> Mapping[str, float]:
    found: Mapping[str, float] = copy.env.pop_statistics() if hasattr(copy.env, "pop_statistics") else {}
    return found


def consistency(patient: Patient, _before: Mapping[str, Finding]) -> Outcome:
    """Same seed, same first observation and rollout; another seed, others."""
    if not patient.seeded:
        return UNKNOWN, "takes no seed"
    drive = patient.once(Drive.of)
    twin, other = patient.copy(), patient.copy(seed=patient.seed + 1)
    rooms, first = twin.rooms, drive.first
    unequal = int((~twin.same(first, twin.observe())).sum())
    if unequal:
        return FAIL, f"same seed: the first observation differs in {unequal} of {rooms} rooms"
    alike = int(other.same(first, other.observe()).sum())
    if alike > 0.1 * rooms:
        return FAIL, f"another seed: the first observation is the same in {alike} of {rooms} rooms"
    for step in range(REPEATED):
        unequal = int((~twin.same_instant(drive.instants[step], twin.step(drive.actions[step]))).sum())
        if unequal:
            return FAIL, f"same seed and actions: {unequal} of {rooms} rooms differ after {step + 1} steps"
    return PASS, f"equal over {REPEATED} steps in {rooms} rooms"


def views(patient: Patient, _before: Mapping[str, Finding]) -> Outcome:
    """What was returned is kept, and must be what it was after further steps and resets."""
    copy = patient.copy()
    driver = Driver(copy, patient.seed)
    held = [
        (f"get_observations() {name}", tensor, tensor.clone()) for name, tensor in _tensors(copy.env.get_observations())
    ]
    for step in range(6):
        if step in (2, 4):
            copy.leave(2)
        action = driver.push()
        observation, reward, done, extras = copy.raw_step(action)
        named = {"observation": observation, "reward": reward, "done": done, "extras": extras}
        held += [(name, tensor, tensor.clone()) for name, tensor in _tensors(named)]
        copy.env.get_observations()
    changed = sorted({name for name, tensor, value in held if not torch.equal(tensor.nan_to_num(), value.nan_to_num())})
    if changed:
        return FAIL, f"changed after it was returned: {', '.join(changed)}"
    return PASS, f"{len(held)} returned tensors unchanged"


def _tensors(tree: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(tree, torch.Tensor):
        yield name, tree
    elif hasattr(tree, "keys"):
        for key in tree.keys():  # noqa: SIM118, a TensorDict iterates over its rows
            yield from _tensors(tree[key], f"{name}.{key}" if name else str(key))


def isolation(patient: Patient, before: Mapping[str, Finding]) -> Outcome:
    """Actions that are not finite in one room: every other room must go on as if nothing had been."""
    if before["reset consistency"].verdict != PASS:
        return UNKNOWN, NOT_ALIKE
    clean, ill = patient.copy(), patient.copy()
    driver = Driver(clean, patient.seed)
    room = clean.rooms // 2
    others = torch.arange(clean.rooms) != room
    for step in range(12):
        action = driver.push()
        spoilt = action.clone()
        if step in (2, 6):
            spoilt[room] = torch.nan if step == 2 else torch.inf
        one = clean.step(action)
        try:
            other = ill.step(spoilt)
        except Exception as error:
            return FAIL, f"a not-finite action in one room ends them all: {told(error)}"
        hit = int((~clean.same_instant(one, other) & others).sum())
        if hit:
            return FAIL, f"not-finite actions in 1 room change {hit} of the {clean.rooms - 1} others"
    if not ill.observe()[room].isfinite().all():
        return FAIL, "a room given a not-finite action still observes not-finite values 5 steps later"
    return PASS, f"{clean.rooms - 1} rooms unmoved by not-finite actions in another"
