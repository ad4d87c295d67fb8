"""Whether observation, reward and end are told of one and the same instant, and never of one that is yet to come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from navtask.doctor.finding import FAIL, NOT_ALIKE, PASS, UNKNOWN, Finding, Outcome
from navtask.doctor.patient import Driver, Instant, Patient
from navtask.doctor.resets import NO_LIMIT

# -- ends ------------------------------------------------------------------------------------------------------------

END_STEPS = 60
LEAST_ENDS = 8


def instants(patient: Patient, before: Mapping[str, Finding]) -> Outcome:
    """An end belongs to the instant that its step led to, and so does ``final_obs``.

    What ended a room on some step is undone in a copy that does the opposite on that very step. If that never helps,
    but the opposite one step earlier does, ends are told a step late.
    """
    if before["reset consistency"].verdict != PASS:
        return UNKNOWN, NOT_ALIKE
    one = patient.copy()
    driver = Driver(one, patient.seed)
    actions = torch.stack([driver.push() for _ in range(END_STEPS)])
    end = torch.full((one.rooms,), -1)
    mixed = 0
    shown = torch.zeros(2, dtype=torch.long)
    for step in range(END_STEPS):
        now = one.step(actions[step])
        if now.final is not None:
            moved = ~one.same(now.final, now.observation)
            mixed += int((moved & ~now.done).sum())
            shown += torch.tensor([int((moved & now.done).sum()), int(now.done.sum())])
        end[(end < 0) & now.done] = step
    if mixed:
        return FAIL, f"final_obs differs from the observation in {mixed} rooms that did not end"
    if shown[1] >= LEAST_ENDS and shown[0] < shown[1] / 2:
        return (
            FAIL,
            f"final_obs is the observation after the reset in {int(shown[1] - shown[0])} of {int(shown[1])} ends",
        )
    ended = int((end >= 0).sum())
    if ended < LEAST_ENDS:
        return UNKNOWN, f"only {ended} episodes ended"
    delay = patient.once(Responses.of).delay
    last, earlier = (_undone(patient, actions, end, back=delay + k) for k in range(2))
    when = "on their step" if not delay else "on the step before, whose action moves nothing until theirs"
    if last < 0.02 and earlier > 0.2:
        return (
            FAIL,
            f"the opposite action averts {last:.0%} of {ended} ends {when}, {earlier:.0%} a step earlier",
        )
    if last < 0.02:
        return UNKNOWN, f"the opposite action averts none of {ended} ends"
    return PASS, f"the opposite action averts {last:.0%} of {ended} ends {when}"


def _undone(patient: Patient, actions: torch.Tensor, end: torch.Tensor, back: int) -> float:
    """Share of the ends that do not come when the opposite is done from ``back`` steps before on."""
    copy = patient.copy()
    due = torch.zeros(copy.rooms, dtype=torch.bool)
    for step in range(int(end.max()) + 1):
        opposite = (step >= end - back).unsqueeze(-1)
        done = copy.step(torch.where(opposite, -actions[step], actions[step])).done
        due |= done & (step == end)
    could = end >= back  # an episode must be old enough to have been steered back then
    return 1.0 - (due & could).sum().item() / max(int(could.sum()), 1)


# -- time limit ------------------------------------------------------------------------------------------------------


def truncation(patient: Patient, before: Mapping[str, Finding]) -> Outcome:
    """A room that only ran out of time, as a copy with time left shows, is in ``time_outs`` and not in ``terminated``;
    one that ended otherwise is the other way round."""
    if before["reset consistency"].verdict != PASS:
        return UNKNOWN, NOT_ALIKE
    one, more = patient.copy(), patient.copy()
    more.leave(int(more.limit.min()))
    driver, age = Driver(one, patient.seed), torch.zeros_like(more.limit)
    for _ in range(3):
        action = driver.push()
        one.step(action)
        age = torch.where(more.step(action).done, 0, age + 1)
    one.leave(1)
    action = driver.push()
    now, on = one.step(action), more.step(action)
    age = torch.where(on.done, 0, age + 1)
    only = now.done & ~on.done
    total = int(only.sum())
    if not total:
        return UNKNOWN, NO_LIMIT
    if now.time_out is None:
        return FAIL, "extras have no time_outs, though the time limit ends episodes"
    fired = int((now.time_out & only).sum())
    if fired < total:
        return FAIL, f"time_outs fires in {fired} of {total} rooms that only ran out of time"
    if now.terminated is not None and (now.terminated & only).any():
        return (
            FAIL,
            f"{int((now.terminated & only).sum())} of {total} rooms that only ran out of time are in terminated",
        )
    failed = excused = 0
    for _ in range(END_STEPS):
        on = more.step(driver.push())
        assert on.time_out is not None
        early = on.done & (age + 1 < more.limit)
        failed += int(early.sum())
        excused += int((on.time_out & early).sum())
        age = torch.where(on.done, 0, age + 1)
    if excused:
        return FAIL, f"time_outs fires in {excused} of {failed} rooms that had time left"
    if now.final is None:
        return UNKNOWN, f"time_outs fires in all {total} rooms out of time; no final_obs to bootstrap from"
    return PASS, f"time_outs fires in all {total} rooms out of time, in none of {failed} other ends"


# -- reward and observation ------------------------------------------------------------------------------------------

COPIES, PASTS = 8, (2, 6, 11)
FITS = 0.3
"""Share of the reward's variance that its instant must explain to be taken for the reward's own."""
BETTER = 0.2
"""By how much a lagged instant must explain more, since the two are much alike."""
MOST = 0.5
"""Share of all that the reward answers to an action, on both steps, that a lag must account for. Healthy tasks of any
weighting come to 0.04 at most, late ones to 0.6 at least: what a term does on its own step may be nothing that a
regression fits, but it is there, while a lag would leave it out."""


@dataclass
class Fork:
    """Copies in one state that were then given different actions, and after that all the same one.

    K copies, N rooms (those that went on throughout), W observation values, A axes.
    """

    action: torch.Tensor
    """(K, N, A) the different ones."""
    past: torch.Tensor
    """(N, A) before."""
    then: torch.Tensor
    """(N, A) after."""
    observation: torch.Tensor
    """(2, K, N, W) what the different actions led to, and what the same one did."""
    reward: torch.Tensor
    """(2, K, N)"""

    @classmethod
    def of(cls, patient: Patient, seed: int, past: int) -> "Fork":
        """After ``past`` steps from the start."""
        driver = Driver(patient.copy(seed=seed), seed)
        patient.give_back()
        before = [driver.push() for _ in range(past)]
        actions = [driver.uniform() for _ in range(COPIES)]
        after = driver.uniform()
        ended: list[torch.Tensor] = []
        steps: list[list[Instant]] = []
        for action in actions:  # one after the other: where a copy can be restarted, it is all of them
            copy = patient.copy(seed=seed)
            *_, last = [copy.step(push) for push in before]
            steps.append([copy.step(action), copy.step(after)])
            ended += [now.done for now in (last, *steps[-1])]
            patient.give_back()
        on = ~torch.stack(ended).any(0)

        def told(name: str) -> torch.Tensor:
            """(2, K, N, ...)"""
            return torch.stack([torch.stack([getattr(copy[k], name) for copy in steps]) for k in range(2)])[:, :, on]

        return cls(
            action=torch.stack(actions)[:, on],
            past=before[-1][on],
            then=after[on],
            observation=told("reached"),
            reward=told("reward"),
        )


@dataclass
class Responses:
    """How observation and reward answer to an action, on its own step and on the next, over all forks.

    Rows are copies of rooms, less the mean over the copies of a room: what is left is the action's doing.
    """

    observation: torch.Tensor
    """(2, R, W)"""
    features: torch.Tensor
    """(2, R, F) the observation and, where there are rows enough to fit them, its squares: for distances."""
    reward: torch.Tensor
    """(2, R) less what the actions alone explain: penalties on them tell nothing of an instant."""
    actions: torch.Tensor
    """(R, A)"""
    held_out: torch.Tensor
    """(R,) bool: rows of rooms that no fit sees."""
    repeats: torch.Tensor
    """(W,) bool: values that only repeat what others were a step before."""

    @classmethod
    def of(cls, patient: Patient) -> "Responses":
        """From forks of several seeds and pasts."""
        return cls.to([Fork.of(patient, patient.seed + k, past) for k, past in enumerate(PASTS)])

    @classmethod
    def to(cls, forks: Sequence[Fork]) -> "Responses":
        """What followed in these forks."""

        def rows(part: torch.Tensor) -> torch.Tensor:
            return (part - part.mean(-3, keepdim=True)).flatten(-3, -2)

        observation = torch.cat([rows(f.observation) for f in forks], dim=1)
        reward = torch.cat([rows(f.reward.unsqueeze(-1)) for f in forks], dim=1).squeeze(-1)
        action = torch.cat([rows(f.action) for f in forks])
        # Penalties: linear, square, and on changes |a - b|^2, whose mixed part is a b.
        direct = torch.cat(
            [
                rows(torch.cat([f.action, f.action.abs(), f.action.square(), f.action * f.past, f.action * f.then], -1))
                for f in forks
            ]
        )
        room = torch.cat([torch.arange(f.past.shape[0]).repeat(COPIES) for f in forks])
        held_out = room % 3 == 0
        for k in range(2):
            reward[k] -= predict(direct, reward[k], held_out)
        features = observation
        if 8 * observation.shape[-1] < observation.shape[1]:
            squares = torch.cat([rows(f.observation.square()) for f in forks], dim=1)
            features = torch.cat([observation, squares], dim=-1)
        latest = torch.cat([f.observation.flatten(1, 2) for f in forks], dim=1)
        return cls(observation, features, reward, action, held_out, _repeats(latest))

    def explained(self, reward: int, observation: int) -> float:
        """Share of the held-out variance of the reward of one step that the observation of one explains."""
        if not self.reward_answers[reward]:
            return 0.0
        target = self.reward[reward]
        rest = target - predict(self.features[observation], target, self.held_out)
        return max(0.0, 1.0 - _power(rest[self.held_out]) / max(_power(target[self.held_out]), 1e-12))

    def accounted(self, reward: int, observation: int) -> float:
        """The same as a share of what the reward answers on both steps."""
        own, later = (_power(part) for part in self.reward)
        return self.explained(reward, observation) * (own, later)[reward] / max(own + later, 1e-12)

    @property
    def reward_answers(self) -> tuple[bool, bool]:
        """Whether the reward answers on the action's own step, and on the next."""
        own, later = (_power(part) for part in self.reward)
        return own > 1e-4 * max(own, later, 1e-12), later > 1e-4 * max(own, later, 1e-12)

    @property
    def delay(self) -> int:
        """Control steps until an action moves anything: 1 where neither the reward nor most values answer at once."""
        ahead, answering = self.ahead()
        return int(not self.reward_answers[0] and ahead.sum() < 0.5 * answering.sum())

    def ahead(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(W,) bool each: values that answer on the action's own step, and values that answer at all.

        Values that follow from the action alone are echoes of it, and those that repeat others older: in neither.
        """
        power = self.observation.square().mean(1)
        rest = self.observation[0] - predict(self.actions, self.observation[0], self.held_out)
        echo = rest.square().mean(0) < 1e-3 * power[0]
        answers = (power > 1e-10) & ~echo & ~self.repeats
        return answers[0], answers[0] | answers[1]


def _repeats(observation: torch.Tensor) -> torch.Tensor:
    before = {column.numpy().tobytes() for column in observation[0].T}
    return torch.tensor([column.numpy().tobytes() in before and bool(column.std() > 0) for column in observation[1].T])


def predict(features: torch.Tensor, target: torch.Tensor, held_out: torch.Tensor) -> torch.Tensor:
    """Ridge regression of (R,) or (R, W) on (R, F), fitted to the rows that aren't held out."""
    scale = features.std(0)
    x = (features / scale.clamp(min=1e-6)).double()
    seen = x[~held_out]
    y = target.double()
    gram = seen.T @ seen + 1e-3 * len(seen) * torch.eye(x.shape[1], dtype=torch.double)
    return (x @ torch.linalg.solve(gram, seen.T @ y[~held_out])).float()


def _power(values: torch.Tensor) -> float:
    return values.double().square().mean().item()


def _part_ahead(responses: Responses) -> tuple[int, int]:
    """Values that are a step ahead of the reward while others are not (0 if there are none), and all that answer."""
    own, later = responses.reward_answers
    ahead, any_ = responses.ahead()
    leading, answering = int(ahead.sum()), int(any_.sum())
    mixed = not own and later and 0 < leading < 0.9 * answering
    return (leading if mixed else 0), answering


def reward_instant(patient: Patient, before: Mapping[str, Finding]) -> Outcome:
    """Of copies in one state, what each one's action did to its observation must explain what it did to its reward.

    A lag of one step is the fault where its own instant does not explain the reward, and the lag accounts for most of
    what it does at all: what no instant explains may be anything.
    """
    if before["reset consistency"].verdict != PASS:
        return UNKNOWN, NOT_ALIKE
    r = patient.once(Responses.of)
    if _part_ahead(r)[0]:
        return UNKNOWN, "only part of the observation is ahead of the reward"
    if r.delay:
        none = r.explained(1, 1)
        return (PASS if none >= FITS else UNKNOWN), f"the observation explains {none:.0%} of the reward of its step"
    none, reward_late, observation_late = r.explained(0, 0), r.explained(1, 0), r.explained(0, 1)
    figure = f"the observation explains {none:.0%} of the reward of its step, {reward_late:.0%} of the next"
    if none >= FITS:
        return PASS, figure
    if reward_late > none + BETTER and r.accounted(1, 0) > MOST:
        return FAIL, f"{figure}: the reward is a step late"
    if observation_late > none + BETTER and r.accounted(0, 1) > MOST:
        return FAIL, f"{figure}, {observation_late:.0%} of the one before: the observation is late"
    return UNKNOWN, figure


def future(patient: Patient, before: Mapping[str, Finding]) -> Outcome:
    """Copies in the same state with different pending actions observe the same.

    Pending is an action that lies in the caller's buffer, and one that was given but has not moved anything yet: no
    part of the observation answers to an action before the bodies do, which the reward shows.
    """
    if before["reset consistency"].verdict != PASS:
        return UNKNOWN, NOT_ALIKE
    copy = patient.copy()
    driver = Driver(copy, patient.seed)
    buffer = driver.push().to(copy.env.device)
    copy.env.step(buffer)
    seen = copy.observe()
    buffer.copy_(driver.uniform())
    knowing = int((~copy.same(seen, copy.observe())).sum())
    if knowing:
        return (
            FAIL,
            f"the observation follows the caller's action before it is given, in {knowing} of {copy.rooms} rooms",
        )
    r = patient.once(Responses.of)
    part, answering = _part_ahead(r)
    if part:
        return FAIL, f"{part} of {answering} values of the observation answer to an action that has moved nothing yet"
    if not any(r.reward_answers):
        return UNKNOWN, "the reward doesn't show when bodies move"
    return PASS, f"none of {answering} values that answer to an action is ahead of the reward"
