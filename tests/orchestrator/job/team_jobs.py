"""What the processes of a job do in test_torchrun.py; one process alone may do it too."""

from pathlib import Path

import torch

from orchestrator.job import spec
from orchestrator.job.distributed import join
from orchestrator.job.runner import Runner


def learn(folder: Path) -> int:
    """Learn twice from given actions, the same whoever takes them, and leave in ``rank_<rank>.pt`` what came of it."""
    torch.set_num_threads(1)
    processes = join("cpu")
    trial = spec.read(folder)
    runner = Runner(trial.config, seed=trial.seed, folder=folder, threads=1, processes=processes)
    env, algorithm = runner.env, runner.algorithm
    own = slice(processes.rank * env.num_envs, (processes.rank + 1) * env.num_envs)
    generator = torch.Generator().manual_seed(0)
    told = []
    for _ in range(2):
        observation = env.get_observations()
        with torch.inference_mode():
            for _ in range(trial.config.algorithm.num_steps_per_env):
                algorithm.act(observation)
                algorithm.transition.actions = torch.randn(trial.config.num_envs, 3, generator=generator)[own]
                observation, rewards, dones, extras = env.step(algorithm.transition.actions)
                algorithm.process_env_step(observation, rewards, dones, extras)
            algorithm.compute_returns(observation)
        advantages = algorithm.storage.advantages.clone()
        told.append(
            {
                "advantages": advantages,
                "scalars": algorithm.update() | env.pop_statistics(processes.sum),
                "gradients": {
                    f"{name}.{key}": p.grad.clone()
                    for name in ("actor", "critic", "rnd")
                    for key, p in getattr(algorithm, name).named_parameters()
                    if p.grad is not None
                },
                "algorithm": algorithm.save(),
                "goals": env.rooms.goal.clone(),
                "noise": torch.rand(4),
            }
        )
        told[-1] = torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, told[-1])
    torch.save(told, folder / f"rank_{processes.rank}.pt")
    processes.close()
    return 0
