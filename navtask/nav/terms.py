"""The registries of this task's terms, and the decorators by which one is added."""

from navtask.registry import Terms

TERMS = Terms("navtask.nav")
OBSERVATIONS, REWARDS = TERMS.observations, TERMS.rewards
deployable, sim_only, reward = TERMS.deployable, TERMS.sim_only, TERMS.reward
