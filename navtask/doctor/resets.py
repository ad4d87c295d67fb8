"""Whether an episode begins anew: drawn at random, with nothing of the one before."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from navtask.doctor.finding import FAIL, NOT_ALIKE, PASS, UNKNOWN, Finding, Outcome
from navtask.doctor.patient import Copy, Driver, Patient

SEEDS, ROOMS, EPISODES = 20, 8, 5
REPEATED = 0.1
"""Share of beginnings equal to the one before (or next door) that is no accident any more."""


def next_episode(copy: Copy, actions: list[torch.Tensor]) -> torch.Tensor:
    """Let the time limit end every room's episode on the last of ``actions``; (N,) where only that ended it."""
    copy.leave(len(actions))
    early = torch.zeros(copy.rooms, dtype=torch.bool)
    for action in actions[:-1]:
        early |= copy.step(action).done
    return copy.step(actions[-1]).done & ~early


NO_LIMIT = "setting episode_length_buf near the limit ends no episode"


# -- what is drawn ---------------------------------------------------------------------------------------------------


@dataclass
class Beginnings:
    """How often each part of a beginning repeats itself."""

    episodes: dict[str, float]
    """Part -> share of resets after which it is that of an earlier episode of the room."""
    rooms: dict[str, float]
    """Part -> share of rooms in which it is that of the room next door."""
    told: bool
    """Whether the parts are the scene's; else the only one is the whole first observation."""
    ends: bool
    """Whether there was more than one episode."""

    @classmethod
    def of(cls, patient: Patient) -> "Beginnings":
        """From the beginnings of some episodes of some rooms of many seeds."""
        drawn: list[dict[str, torch.Tensor]] = []
        ends, told = True, False
        for seed in range(SEEDS if patient.seeded else 1):
            copy = patient.copy(seed=patient.seed + seed, rooms=ROOMS)
            told = copy.scene() is not None
            parts: list[dict[str, torch.Tensor]] = []
            for _ in range(EPISODES):
                parts.append(copy.scene() or {"first observation": copy.observe()})
                ends = ends and bool(next_episode(copy, [copy.idle()]).all())
            drawn.append({name: torch.stack([p[name] for p in parts]) for name in parts[0] if parts[0][name].numel()})
            patient.give_back()
        episodes, rooms = {}, {}
        for name in drawn[0]:
            part = torch.stack([d[name] for d in drawn])  # (seeds, episodes, rooms, K)
            # Told apart by a thousandth of its size: what varies by less might as well not vary.
            close = 1e-3 * part.flatten(0, 2).square().mean(0).sqrt() + 1e-9
            again = [(part[:, k : k + 1] - part[:, :k]).abs() <= close for k in range(1, EPISODES)]
            episodes[name] = _share(torch.stack([equal.all(-1).any(1) for equal in again]))
            rooms[name] = _share(((part - part.roll(1, dims=2)).abs() <= close).all(-1))
        return cls(episodes, rooms, told, ends)


def _share(equal: torch.Tensor) -> float:
    return equal.double().mean().item()


def _told(shares: Mapping[str, float], names: list[str]) -> str:
    return ", ".join(f"{name} {shares[name]:.0%}" for name in names)


def _repeats(b: Beginnings) -> list[str]:
    return [name for name, share in b.episodes.items() if share > REPEATED]


def random_reset(patient: Patient, _before: Mapping[str, Finding]) -> Outcome:
    """Start and layout differ from episode to episode; where everything repeats itself, that is told here alone."""
    b = patient.once(Beginnings.of)
    if not b.ends:
        return UNKNOWN, NO_LIMIT
    repeats = _repeats(b)
    if repeats and (repeats != ["goal"] or len(b.episodes) == 1):
        return FAIL, f"the same as in an earlier episode: {_told(b.episodes, repeats)} of {_total()} resets"
    if not b.told:
        return UNKNOWN, "beginnings differ as a whole; not told apart are start, goal and layout"
    names = [name for name in b.episodes if name != "goal"]
    return PASS, f"the same as in an earlier episode: {_told(b.episodes, names)} of {_total()} resets"


def _total() -> int:
    return SEEDS * ROOMS * (EPISODES - 1)


def rooms_differ(patient: Patient, _before: Mapping[str, Finding]) -> Outcome:
    """Rooms differ from each other; a part that never changes at all is told by the check on episodes."""
    b = patient.once(Beginnings.of)
    alike = [name for name, share in b.rooms.items() if share > REPEATED and b.episodes[name] <= REPEATED]
    if alike:
        return FAIL, f"the same as in the room next door: {_told(b.rooms, alike)}"
    return PASS, f"the same as in the room next door: {_told(b.rooms, list(b.rooms))}"


def goals_differ(patient: Patient, _before: Mapping[str, Finding]) -> Outcome:
    """The goal differs from episode to episode."""
    b = patient.once(Beginnings.of)
    if not b.ends:
        return UNKNOWN, NO_LIMIT
    if "goal" not in b.episodes:
        return UNKNOWN, "doesn't tell where the goal is"
    repeats = _repeats(b)
    if repeats == ["goal"] and len(b.episodes) > 1:
        return FAIL, f"the goal is that of an earlier episode in {b.episodes['goal']:.0%} of {_total()} resets"
    if "goal" in repeats:
        return UNKNOWN, "nothing else changes either"
    return PASS, f"the goal is that of an earlier episode in {b.episodes['goal']:.0%} of {_total()} resets"


# -- what is left behind ---------------------------------------------------------------------------------------------


def first_observation(patient: Patient, _before: Mapping[str, Finding]) -> Outcome:
    """The observation that a reset returns is that of the new state: reading the state anew must not change it.

    Where there is no ``state()`` and ``load()``: under no action, the first step must not change it by much more than
    the second.
    """
    copy = patient.copy()
    driver = Driver(copy, patient.seed)
    wait = [driver.push() for _ in range(8)]
    ended = next_episode(copy, wait)
    if not ended.any():
        return UNKNOWN, NO_LIMIT
    first = copy.observe()
    if hasattr(copy.env, "state") and hasattr(copy.env, "load"):
        copy.env.load(copy.env.state())
        wrong = ~copy.same(first, copy.observe()) & ended
        what = "the first observation is not that of the state"
    else:
        one, two = copy.step(copy.idle()), copy.step(copy.idle())
        ended &= ~one.done & ~two.done
        jump, after = (one.observation - first).abs().amax(-1), (two.observation - one.observation).abs().amax(-1)
        wrong = (jump > 10 * after + 1e-3) & ended
        what = "without any action the first observation jumps at once"
    count, total = int(wrong.sum()), int(ended.sum())
    if count > REPEATED * total:
        return FAIL, f"{what} in {count} of {total} rooms after a reset"
    return PASS, f"{what} in {count} of {total} rooms after a reset"


def hidden_state(patient: Patient, before: Mapping[str, Finding]) -> Outcome:
    """Two copies with different pasts begin the same episode: it must go the same way, in what is observed and paid.

    Once through the resets that the time limit brings, once through ``restart()`` against a new environment.
    """
    if before["reset consistency"].verdict != PASS:
        return UNKNOWN, NOT_ALIKE
    # A first observation of the wrong pose differs too, but that is another check's.
    first_counts = before["first observation"].verdict != FAIL
    by_limit = _after_time_limit(patient, first_counts)
    restarted = _after_restart(patient, first_counts)
    for outcome in (by_limit, restarted):
        if outcome is not None and outcome[0] == FAIL:
            return outcome
    told = [outcome[1] for outcome in (by_limit, restarted) if outcome is not None]
    return (PASS, "; ".join(told)) if told else (UNKNOWN, "can't begin the same episode twice")


LONGEST = 250
"""Steps of an episode that are compared, at most: what looks back over a window shows only when that is over."""


def _after_time_limit(patient: Patient, first_counts: bool) -> Outcome | None:
    one, other = patient.copy(), patient.copy()
    here, there = Driver(one, patient.seed), Driver(other, patient.seed + 1)
    both = next_episode(one, [here.push() for _ in range(4)]) & next_episode(other, [there.push() for _ in range(9)])
    mine, its = one.scene(), other.scene()
    if mine is not None and its is not None:
        # A start that carries something over is the fault itself: the rest of the scene tells which episode it is.
        for name in mine:
            if name != "body":
                both &= one.same(mine[name], its[name])
    if both.sum() < one.rooms / 4:
        return None
    first = one.same(one.observe(), other.observe())
    if mine is None and first_counts and not first[both].any():
        return None  # nobody says that it is the same episode
    return _compare(one, other, both, first if first_counts else both, "after different pasts", patient.seed)


def _after_restart(patient: Patient, first_counts: bool) -> Outcome | None:
    used = patient.copy()
    if not hasattr(used.env, "restart"):
        return None
    driver = Driver(used, patient.seed)
    next_episode(used, [driver.push() for _ in range(12)])
    for _ in range(3):
        used.step(driver.push())
    used.env.restart()
    new = patient.copy()
    everywhere = torch.ones(new.rooms, dtype=torch.bool)
    first = new.same(used.observe(), new.observe()) | (not first_counts)
    return _compare(used, new, everywhere, first, "after restart()", patient.seed)


def _compare(one: Copy, other: Copy, rooms: torch.Tensor, first: torch.Tensor, when: str, seed: int) -> Outcome:
    total = int(rooms.sum())
    unequal = int((rooms & ~first).sum())
    if unequal:
        return FAIL, f"{when} the first observation differs in {unequal} of {total} rooms"
    driver = Driver(one, seed + 2)
    still = torch.arange(one.rooms) % 2 == 0
    alive, reached = rooms.clone(), 0
    for step in range(min(int(one.limit.max()), LONGEST)):
        if not alive.any():
            break
        action = driver.push()
        action[still] *= 0.02  # a robot that stays where it is has other things to remember
        here, there = one.step(action), other.step(action)
        unequal_reward = int((alive & ~one.same(here.reward, there.reward)).sum())
        if unequal_reward:
            return FAIL, f"{when} the reward of step {step + 1} differs in {unequal_reward} of {total} rooms"
        unequal = int((alive & ~(one.same(here.reached, there.reached) & (here.done == there.done))).sum())
        if unequal:
            return FAIL, f"{when} step {step + 1} differs in {unequal} of {total} rooms"
        reached += int(alive.sum())
        alive &= ~here.done
    return PASS, f"{when} {reached} room-steps are equal"


def first_ages(patient: Patient, _before: Mapping[str, Finding]) -> Outcome:
    """Episodes that were given an age at their start are left out of what is told of episodes; others are not."""
    copy = patient.copy()
    if not hasattr(copy.env, "pop_statistics"):
        return UNKNOWN, "keeps no statistics of its episodes"
    copy.env.pop_statistics()
    ended = int(next_episode(copy, [copy.idle()]).sum())
    if not ended:
        return UNKNOWN, NO_LIMIT
    if _counts(copy):
        return FAIL, f"{ended} episodes that were one step long are counted as whole ones"
    driver = Driver(copy, patient.seed)
    for _ in range(int(copy.limit.max()) + 1):
        if copy.step(driver.push()).done.any():
            break
    if not _counts(copy):
        return UNKNOWN, "no episode is ever counted"
    return PASS, f"{ended} episodes of a given age are left out"


def _counts(copy: Copy) -> bool:
    return any(name.startswith(("Episode_Termination/", "Train/mean_")) for name in copy.env.pop_statistics())
