"""The checks, in the order in which they are made, and the examination as a whole."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from navtask.doctor import driving, instants, raised, resets, running
from navtask.doctor.finding import PASS, UNKNOWN, Finding, Outcome
from navtask.doctor.patient import Patient


@dataclass(frozen=True)
class Check:
    """One fault, or one thing that must work."""

    name: str
    examine: Callable[[Patient, Mapping[str, Finding]], Outcome]
    """Handed the patient and what was found before."""
    look_at: str


CHECKS = (
    Check("stress", running.stress, "terms that divide or take roots, contact buffers, integrator step"),
    Check("reset consistency", running.consistency, "generators that are not keyed by the seed, unordered sums"),
    Check("first observation", resets.first_observation, "sensors read before the reset has moved the bodies"),
    Check("hidden state", resets.hidden_state, "reset: previous action, windows, velocities, warm start, noise"),
    Check("instants", instants.instants, "order within the step: move, sense, then ends, reward and final_obs"),
    Check("reward instant", instants.reward_instant, "quantities cached from the step before, sensors read late"),
    Check("knows the future", instants.future, "actions kept by reference, sensors read after the next command"),
    Check("random reset", resets.random_reset, "generator or episode counter that does not advance at a reset"),
    Check("rooms differ", resets.rooms_differ, "random numbers that are not keyed by the room"),
    Check("goals differ", resets.goals_differ, "a goal that is drawn once, or from constants"),
    Check("truncation", instants.truncation, "time limit mixed into terminated, time_outs missing from extras"),
    Check("action range", driving.range_used, "ctrlrange, clipping, dead zone and gain of the actuators"),
    Check("solid obstacles", driving.solid, "bounding volumes and geoms not refreshed after a move or a resize"),
    Check("seen obstacles", driving.seen, "the scan's own copy of the obstacles, culling, bounding volumes"),
    Check("kept tensors", running.views, "buffers handed out without a copy"),
    Check("rooms apart", running.isolation, "sums or branches over all rooms, not-finite actions passed on"),
    Check("first ages", resets.first_ages, "statistics that count episodes begun at a random age"),
)


def examine(patient: Patient) -> list[Finding]:
    """Every check's finding, in order. What the environment raises is its fault, told once, where it arose first; what
    a check itself raises is not."""
    found: dict[str, Finding] = {}
    arisen: dict[str, str] = {}
    for check in CHECKS:
        try:
            with torch.no_grad():
                verdict, figure = check.examine(patient, found)
        except Exception as error:
            verdict, figure = raised.outcome(error)
            first = arisen.setdefault(raised.where(error), check.name)
            if first != check.name:
                verdict, figure = UNKNOWN, f"raises as in '{first}'"
        found[check.name] = Finding(check.name, verdict, figure, check.look_at)
        patient.give_back()
        if check.name == "hidden state" and verdict == PASS and patient.restarts:
            patient.reuse = True
    return list(found.values())
