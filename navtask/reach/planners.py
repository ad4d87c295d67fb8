"""A classical controller, as a policy: it sees what a real arm has, and is judged by the same evaluation."""

from collections.abc import Callable

import torch
import warp as wp
from tensordict import TensorDict

from navtask.binding import ObservationGroups
from navtask.errors import ConfigError
from navtask.evaluation import Policy
from navtask.kernels import start_warp
from navtask.reach.arm import JOINTS, Chain, read_arm, step_towards, vec6
from navtask.reach.config import ReachConfig
from navtask.reach.terms import TERMS

wp.set_module_options({"enable_backward": False})


@wp.kernel
def steer(
    chain: Chain,
    greatest: float,
    posture: wp.array(dtype=vec6),
    to_target: wp.array(dtype=wp.vec3),
    # out
    actions: wp.array(dtype=vec6),
):
    """The change of the angles that takes the tool to its target, in units of the ``greatest`` of a control step; all
    joints slowed down alike where one of them would have to be faster."""
    i = wp.tid()
    dq = step_towards(chain, posture[i], to_target[i]) / greatest
    actions[i] = dq / wp.max(1.0, wp.max(wp.max(dq), -wp.min(dq)))


class ResolvedRate:
    """Moves the tool straight to its target, as fast as the joints allow (Whitney 1969). Raises ConfigError when the
    task does not show what it looks at."""

    def __init__(self, config: ReachConfig):
        start_warp()
        arm = read_arm()
        layout = ObservationGroups(TERMS.observations, config, 1).layout("policy")
        self._where = {term.name: slice(start, start + width) for term, start, width in layout}
        for name in ("joint_pos", "to_target"):
            if name not in self._where:
                raise ConfigError(f"task.observations.{name}.enabled", False, "true: planners look at it")
        self._chain = arm.chain()
        self._greatest = arm.v_max * config.control_dt
        self._scale = config.goal_distance_scale
        self._home = torch.tensor(arm.home, dtype=torch.float32)

    def __call__(self, observation: TensorDict) -> torch.Tensor:
        """Actions (N, 6) in [-1, 1]."""
        shown = observation["policy"]
        posture = shown[:, self._where["joint_pos"]] + self._home.to(shown.device)
        to_target = shown[:, self._where["to_target"]] * self._scale
        actions = torch.zeros(len(shown), JOINTS, device=shown.device)
        inputs = [
            self._chain,
            self._greatest,
            wp.from_torch(posture.contiguous(), dtype=vec6),
            wp.from_torch(to_target.contiguous(), dtype=wp.vec3),
            wp.from_torch(actions, dtype=vec6),
        ]
        wp.launch(steer, dim=len(shown), inputs=inputs, device=str(shown.device))
        return actions


PLANNERS: dict[str, Callable[[ReachConfig], Policy]] = {"resolved_rate": ResolvedRate}
"""By the names that an evaluation knows them by."""
