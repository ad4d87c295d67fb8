"""Sick environments: each differs from the healthy one by one fault, and the doctor must name exactly that one."""

import secrets
from dataclasses import replace

import torch
from tensordict import TensorDict

from navtask import random
from navtask.nav.env import NavEnv
from navtask.nav.scene import RoomDrawer, Rooms, Slots

MUTANTS = {}
"""Name -> class; ``fault`` is the name of the check that must fail."""


def names(fault):
    def note(mutant):
        mutant.fault = fault
        MUTANTS[mutant.__name__] = mutant
        return mutant

    return note


def column(mask):
    return mask.unsqueeze(-1)


# -- the environment runs badly --------------------------------------------------------------------------------------


@names("stress")
class RewardDividesByZero(NavEnv):
    """0 / 0 on the step that collides."""

    def step(self, actions):
        observation, reward, done, extras = super().step(actions)
        collided = extras["terminated"] & ~extras["success"]
        return observation, torch.where(collided, torch.nan, reward), done, extras


@names("stress")
class WiderThanDeclared(NavEnv):
    """One value more than the terms say."""

    def _observe(self):
        observation = super()._observe()
        observation["policy"] = torch.cat([observation["policy"], torch.zeros(self.num_envs, 1)], -1)
        return observation


@names("stress")
class FullContactBuffers(NavEnv):
    """The engine has no room for all that touches, and drops the rest."""

    def _advance(self, actions, ends, finite):
        super()._advance(actions, ends, finite)
        self.physics.dropped += 1


@names("reset consistency")
class Unseeded(NavEnv):
    """Rooms come from wherever."""

    def __init__(self, config, *, seed, **settings):
        super().__init__(config, seed=secrets.randbelow(2**31), **settings)


@names("reset consistency")
class DeafToTheSeed(NavEnv):
    """Rooms are the same whatever the seed."""

    def __init__(self, config, *, seed, **settings):
        super().__init__(config, seed=7, **settings)


@names("kept tensors")
class LiveDones(NavEnv):
    """``dones`` is the buffer itself."""

    def step(self, actions):
        observation, reward, done, extras = super().step(actions)
        self._live = getattr(self, "_live", done).copy_(done)
        return observation, reward, self._live, extras


@names("kept tensors")
class LiveObservation(NavEnv):
    """One buffer, written anew by every step: what the learner stores after a step is the next observation."""

    def step(self, actions):
        observation, *rest = super().step(actions)
        return self._shown(observation), *rest

    def get_observations(self):
        return self._shown(super().get_observations())

    def _shown(self, observation):
        if not hasattr(self, "_buffer"):
            self._buffer = observation.clone()
        return self._buffer.copy_(observation)


@names("rooms apart")
class PoisonedReward(NavEnv):
    """A mean over all rooms, with no weight at all; but 0 times not-a-number is not-a-number."""

    def step(self, actions):
        observation, reward, *rest = super().step(actions)
        return observation, reward + 0.0 * actions.mean(), *rest


@names("rooms apart")
class OneBadActionStopsAll(NavEnv):
    """A guard that looks at the whole batch."""

    def step(self, actions):
        return super().step(actions if actions.isfinite().all() else torch.zeros_like(actions))


@names("first ages")
class AgeIsStep(NavEnv):
    """Setting the age sets the step counter too, so nobody can tell such an episode from a whole one."""

    @property
    def episode_length_buf(self):
        return self.episode.age

    @episode_length_buf.setter
    def episode_length_buf(self, ages):
        self.episode.age.copy_(ages)
        self.episode.step.copy_(ages)


# -- an episode doesn't begin anew -----------------------------------------------------------------------------------


@names("first observation")
class FirstScanFromTheOldPose(NavEnv):
    """After a reset the scan is still cast from where the last episode ended."""

    def _reset(self, mask):
        before = self.truth.pose.clone()
        super()._reset(mask)
        if not mask.all():
            self._lidar.scan(mask, before)


@names("hidden state")
class KeptAction(NavEnv):
    """The first change of action is measured against the last episode's."""

    def _advance(self, actions, ends, finite):
        super()._advance(actions, ends, finite)
        self._kept = self.episode.action.clone()

    def _reset(self, mask):
        if hasattr(self, "_kept"):
            self.episode.action.copy_(torch.where(column(mask), self._kept, self.episode.action))
        super()._reset(mask)


@names("hidden state")
class KeptWindow(NavEnv):
    """The stuck term looks back to where the last episode ended."""

    def _reset(self, mask):
        before = self.truth.pose[:, None, :2].expand_as(self.episode.trail).clone()
        super()._reset(mask)
        if before.any():
            self.episode.trail[mask] = before[mask]


@names("hidden state")
class KeptLongWindow(KeptWindow):
    """So it does, and shows it after three seconds only."""

    def __init__(self, config, **settings):
        stuck = replace(config.rewards["stuck"], params={"window": 60})
        super().__init__(replace(config, rewards={**config.rewards, "stuck": stuck}), **settings)


@names("hidden state")
class KeptVelocity(NavEnv):
    """The body goes on as fast as it was."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        reset, physics = self.physics.reset, self.physics

        def keep(mask, qpos):
            before = physics._qvel.clone()
            reset(mask, qpos)
            physics._qvel.copy_(before)
            physics._read()

        physics.reset = keep


@names("hidden state")
class NoiseGoesOn(NavEnv):
    """The scan's noise is keyed by a clock that no reset sets back."""

    def __init__(self, config, *, seed, **settings):
        self._clock = 0
        self._seed = seed
        super().__init__(config, seed=seed, **settings)

    def _advance(self, actions, ends, finite):
        self._clock += 1
        super()._advance(actions, ends, finite)

    def _observe(self):
        observation = super()._observe()
        generator = torch.Generator().manual_seed(1000 * self._seed + self._clock)
        beams = self.config.lidar.beams
        observation["policy"][:, :beams] += 1e-3 * torch.randn(self.num_envs, beams, generator=generator)
        return observation


# -- what is drawn ---------------------------------------------------------------------------------------------------


class Redrawn(NavEnv):
    """Rooms are changed after they were drawn."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self._draw, self._drawer.draw = self._drawer.draw, self._draw_and_change
        self.restart()

    def _draw_and_change(self, mask, episode):
        self._draw(mask, episode)
        self._change(mask)

    def _change(self, mask):
        raise NotImplementedError

    def _make_way(self, point):
        """Leave out obstacles that stand at ``point`` (N, 2)."""
        rooms = self.rooms
        near = (rooms.centre - point.unsqueeze(1)).norm(dim=-1) < rooms.half.norm(dim=-1) + 0.4
        rooms.half[near] = 0.0
        rooms.centre[near] = 100.0


@names("random reset")
class SameRoomAgain(Redrawn):
    """The counter of episodes does not reach the drawing."""

    def _draw_and_change(self, mask, episode):
        self._draw(mask, torch.zeros_like(episode))


@names("random reset")
class SameStart(Redrawn):
    """Room and goal are drawn, the start is not."""

    def _change(self, mask):
        self.rooms.start[:] = torch.tensor([-4.0, -3.0, 0.5])
        self._make_way(self.rooms.start[:, :2])


@names("random reset")
class NearlySameStart(Redrawn):
    """Some tenths of a millimetre apart."""

    def _change(self, mask):
        jitter = 1e-4 * (self.rooms.start - self.rooms.start.floor())
        self.rooms.start[:] = torch.tensor([-4.0, -3.0, 0.5]) + jitter
        self._make_way(self.rooms.start[:, :2])


@names("random reset")
class TwoRoomsInTurn(Redrawn):
    """Every other episode is the same."""

    def _draw_and_change(self, mask, episode):
        self._draw(mask, episode % 2)


@names("rooms differ")
class OneRoomForAll(Redrawn):
    """Room numbers do not reach the drawing."""

    def __init__(self, config, *, seed, **settings):
        self._one = Rooms.empty(1, Slots.of(config.rooms), torch.device("cpu"))
        self._first = RoomDrawer(self._one, config.rooms, random.source(seed))
        super().__init__(config, seed=seed, **settings)

    def _draw_and_change(self, mask, episode):
        for number in episode[mask].unique():
            self._first.draw(torch.ones(1, dtype=torch.bool), number.view(1))
            for name, tensor in self.rooms.tensors():
                tensor[mask & (episode == number)] = getattr(self._one, name)


@names("goals differ")
class SameGoalInARoom(Redrawn):
    """A room's goal is that of its first episode."""

    def _change(self, mask):
        if not hasattr(self, "_goal"):
            self._goal = self.rooms.goal.clone()
        self.rooms.goal.copy_(self._goal)
        self._make_way(self.rooms.goal)


@names("goals differ")
class SameGoalEverywhere(Redrawn):
    """The goal is a constant."""

    def _change(self, mask):
        self.rooms.goal[:] = torch.tensor([3.0, -2.0])
        self._make_way(self.rooms.goal)


# -- instants --------------------------------------------------------------------------------------------------------


@names("instants")
class LateEnds(NavEnv):
    """Ends are those of the step before."""

    def _advance(self, actions, ends, finite):
        super()._advance(actions, ends, finite)
        if not hasattr(self, "_due"):
            self._due = torch.zeros_like(ends)
        now = ends.clone()
        ends.copy_(self._due)
        self._due = now

    def _reset(self, mask):
        if hasattr(self, "_due"):
            self._due[mask] = False
        super()._reset(mask)


@names("instants")
class FinalObservationAfterReset(NavEnv):
    """``final_obs`` shows the next episode."""

    def step(self, actions):
        observation, reward, done, extras = super().step(actions)
        return observation, reward, done, {**extras, "final_obs": observation.clone()}


@names("reward instant")
class LateReward(NavEnv):
    """The whole reward is that of the step before."""

    def step(self, actions):
        observation, reward, done, extras = super().step(actions)
        late = getattr(self, "_late", torch.zeros_like(reward))
        self._late = torch.where(done, 0.0, reward)
        return observation, late, done, extras

    def restart(self):
        super().restart()
        self._late = torch.zeros(self.num_envs)


@names("reward instant")
class LateProgress(NavEnv):
    """One term only, from distances of the step before."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self._late = torch.zeros(self.num_envs)

    def _reward_context(self, cause):
        self._nearer = self._distance_before - self.sensed.goal_distance
        return super()._reward_context(cause)

    def step(self, actions):
        observation, reward, done, extras = super().step(actions)
        weight = self.config.reward_scale * self.config.rewards["progress"].weight
        reward = reward + weight * (self._late - self._nearer)
        self._late = torch.where(done, 0.0, self._nearer)
        return observation, reward, done, extras

    def restart(self):
        super().restart()
        self._late.zero_()


@names("reward instant")
class LateObservation(NavEnv):
    """What is shown is the instant before; reward and ends are of this one."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self._newest = super().get_observations()

    def step(self, actions):
        observation, reward, done, extras = super().step(actions)
        self._shown = TensorDict(
            {
                group: torch.where(column(done), observation[group], self._newest[group])
                for group in observation.keys()  # noqa: SIM118
            },
            batch_size=[self.num_envs],
        )
        final, self._newest = self._newest, observation
        return self._shown.clone(), reward, done, {**extras, "final_obs": final}

    def get_observations(self):
        return getattr(self, "_shown", self._newest).clone()

    def restart(self):
        super().restart()
        self._shown = self._newest = super().get_observations()


class Delayed(NavEnv):
    """Healthy, but an action takes effect a step later: until then it is pending."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self._pending = torch.zeros(self.num_envs, self.num_actions)

    def step(self, actions):
        observation, reward, done, extras = super().step(self._pending)
        self._pending = torch.where(column(done), 0.0, actions)
        return observation, reward, done, extras

    def restart(self):
        super().restart()
        self._pending.zero_()


@names("knows the future")
class SeesWhereItWillBe(Delayed):
    """Where the goal will be once the pending action has had its effect."""

    def step(self, actions):
        observation, reward, done, extras = super().step(actions)
        self._show_future(extras["final_obs"], where=~done)
        return self._show_future(observation), reward, done, extras

    def get_observations(self):
        return self._show_future(super().get_observations())

    def _show_future(self, observation, where=None):
        state = self.state()
        goal = slice(self.config.lidar.beams, self.config.lidar.beams + 3)
        ahead = NavEnv.step(self, self._pending)[3]["final_obs"]["policy"][:, goal]
        self.load(state)
        if where is not None:
            ahead = torch.where(column(where), ahead, observation["policy"][:, goal])
        observation["policy"][:, goal] = ahead
        return observation


@names("knows the future")
class KeepsTheCallersAction(NavEnv):
    """The last action is kept by reference, and shows what the caller writes there for the next step."""

    def __init__(self, config, **settings):
        super().__init__(config, **settings)
        self._given = torch.zeros(self.num_envs, self.num_actions)

    def step(self, actions):
        self._given = actions
        return super().step(actions)

    def _observe(self):
        observation = super()._observe()
        begun = column(self.episode.step > 0)
        given = torch.where(begun, self._given, 0.0) if hasattr(self, "_given") else torch.zeros(self.num_envs, 3)
        observation["policy"][:, -3:] = given.clamp(-1.0, 1.0)
        return observation


@names("truncation")
class TimeOutsAreFailures(NavEnv):
    """Nobody hears of the time limit."""

    def step(self, actions):
        observation, reward, done, extras = super().step(actions)
        told = {"terminated": done.clone(), "time_outs": torch.zeros_like(done)}
        return observation, reward, done, {**extras, **told}


@names("truncation")
class TimeOutsAreBoth(NavEnv):
    """Out of time is told, and a failure too."""

    def step(self, actions):
        observation, reward, done, extras = super().step(actions)
        return observation, reward, done, {**extras, "terminated": done.clone()}


# -- driving ---------------------------------------------------------------------------------------------------------


class Driven(NavEnv):
    """Actions are changed before they drive."""

    def _advance(self, actions, ends, finite):
        actions.copy_(self._drives(actions))
        super()._advance(actions, ends, finite)

    def _drives(self, actions):
        raise NotImplementedError


@names("action range")
class DeadZone(Driven):
    """Small actions do nothing."""

    def _drives(self, actions):
        return torch.where(actions.abs() < 0.2, 0.0, actions)


@names("action range")
class ClippedInside(Driven):
    """The range ends before the declared one does."""

    def _drives(self, actions):
        return actions.clamp(-0.6, 0.6)


@names("action range")
class UnequalGain(Driven):
    """Half as much to the side."""

    def _drives(self, actions):
        return actions * torch.tensor([1.0, 0.5, 1.0])


@names("solid obstacles")
class ObstaclesOfAir(NavEnv):
    """Obstacles move in the scan only, not in the engine."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.physics.set_geoms = lambda *_: None
        self.restart()

    def restart(self):
        geoms = self.physics._geoms
        geoms["geom_pos"][:, self._first_geom : self._first_geom + self.rooms.half.shape[1], 1] = 1000.0
        super().restart()


@names("solid obstacles")
class StaleBounds(NavEnv):
    """Geoms are moved and resized, but what bounds them is still of the first rooms."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        geoms = self.physics._geoms

        def write_only(mask, first, pos, size, quat):
            rows, columns = mask.nonzero(), slice(first, first + pos.shape[1])
            for name, values in zip(("geom_pos", "geom_size", "geom_quat"), (pos, size, quat), strict=True):
                geoms[name][rows[:, 0].numpy(), columns] = values[mask].numpy()

        self.physics.set_geoms = write_only


class HalfBlind(NavEnv):
    """The scan takes other sizes than the engine."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        scan = self._lidar.scan

        def scan_shrunk(*given, **more):
            half = self.rooms.half.clone()
            self._shrink(self.rooms.half)
            scan(*given, **more)
            self.rooms.half.copy_(half)

        self._lidar.scan = scan_shrunk
        self.restart()


@names("seen obstacles")
class UnseenObstacles(HalfBlind):
    """Every other obstacle is not in the scan."""

    def _shrink(self, half):
        half[:, ::2] = 0.0


@names("seen obstacles")
class SeenSmaller(HalfBlind):
    """The scan has not heard of the new sizes."""

    def _shrink(self, half):
        half.clamp_(max=0.1)
