"""Jobs that learn nothing, quickly: what tests hand to the launcher instead of a training.

A job does as a real one does to the outside: appends `metrics.jsonl`, checkpoints and ends on SIGTERM, goes on from
its checkpoint, and writes `eval_rooms.npz` and `result.json` last. `<study>/fake.json` says what jobs do otherwise:
`all` of them, those of one trial by its number, with one seed (`seed 2`), or `confirm`ing (`confirm 3`, one trial).
"""

import errno
import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import yaml

from orchestrator.errors import UserError
from orchestrator.job.spec import write_aside
from orchestrator.record import wal

_stop: list[int] = []


def train(folder: Path) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: _stop.append(n))
    if os.environ.get("RANK", "0") != "0":  # one of several processes: the first does it all, this one is there
        while not _stop and not (folder / "result.json").exists():
            time.sleep(0.01)
        return 128 + _stop[0] if _stop else 0
    config = yaml.safe_load((folder / "config.yaml").read_text())
    trial = json.loads((folder / "trial.json").read_text())
    behaviour = _behaviour(folder, trial)
    iterations, every = config["algorithm"]["iterations"], config["evaluation"]["every"]
    checkpoint = folder / "checkpoint"
    begin = int(checkpoint.read_text()) if checkpoint.exists() else 0
    with open(folder / "starts", "a") as starts:
        starts.write(f"{begin} {time.time()} {os.getpid()}\n")
    print(f"training from {begin}", flush=True)
    log = folder / "metrics.jsonl"
    if log.exists():
        wal.truncate(log, begin or None)
    writer = wal.MetricsLog(log)
    quality = config["task"]["rewards"]["goal"]["weight"] / 100
    for step in range(begin + 1, iterations + 1):
        time.sleep(behaviour.get("seconds", 0.01))
        if step == behaviour.get("at", iterations // 2):
            _misbehave(folder, behaviour.get("do"), trial["attempt"])
        metrics = {"Train/env_steps": 100.0 * step, "Train/mean_reward": float(step)}
        if step % every == 0 or step == iterations:
            metrics |= _evaluation(behaviour, quality * step / iterations, trial["seed"])
        writer.append(wal.Record(step, round(time.time(), 3), metrics))
        write_aside(checkpoint, str(step))
        if _stop and behaviour.get("do") != "deaf":
            return 128 + _stop[0]
    evaluations = [{"step": r.step} | r.metrics for r in wal.read(log) if "Eval/success_rate" in r.metrics]
    _write_rooms(folder, evaluations)
    if "set" in behaviour:
        sets = {config["evaluation"]["set"]: {"set_hash": behaviour["set"]}}
        write_aside(folder / "eval.json", json.dumps({"sets": sets, "evaluations": evaluations}))
    if behaviour.get("policy"):
        keep_policy(folder)
    result = {"status": "finished", "reason": None, "iterations": iterations, "evaluations": evaluations}
    if behaviour.get("do") == "diverge":
        result |= {"status": "failed", "reason": "diverged: loss is nan at iteration 5"}
    write_aside(folder / "result.json", json.dumps(result))
    return 0 if result["status"] == "finished" else 1


def _behaviour(folder: Path, trial: dict) -> dict:
    file = next((parent / "fake.json" for parent in folder.parents if (parent / "fake.json").exists()), None)
    told = json.loads(file.read_text()) if file else {}
    keys = ["all", str(trial["number"]), f"seed {trial['seed']}"]
    if folder.parent.parent.name == "confirm":
        keys += ["confirm", f"confirm {trial['number']}"]
    return {name: value for key in keys for name, value in told.get(key, {}).items()}


def _evaluation(behaviour: dict, quality: float, seed: int) -> dict[str, float]:
    """`spread` is how much seeds differ, and `eval` has metrics beside the success rate."""
    success = behaviour.get("success", quality) + behaviour.get("spread", 0.0) * luck(seed)
    return {"Eval/success_rate": success} | behaviour.get("eval", {})


def luck(seed: int) -> float:
    """-1 to 1."""
    return seed * 7919 % 101 / 50 - 1


def _write_rooms(folder: Path, evaluations: list[dict]) -> None:
    """In every room the same."""
    names = [name for name in evaluations[-1] if name.startswith("Eval/")]
    rooms = {name[5:]: np.repeat([[e.get(name, np.nan)] for e in evaluations], 20, axis=1) for name in names}
    np.savez(folder / "eval_rooms.npz", step=np.array([e["step"] for e in evaluations]), **rooms)


def keep_policy(folder: Path) -> None:
    """A smallest `policy.npz`: two observations, one action."""
    arrays = {"weight_0": np.ones((1, 2), np.float32), "bias_0": np.zeros(1, np.float32)}
    normaliser = {"mean": np.zeros(2, np.float32), "std": np.ones(2, np.float32)}
    np.savez(folder / "policy.npz", **normaliser, **arrays, activation="elu", output="mean")


def _misbehave(folder: Path, what: str | None, attempt: int) -> None:
    if what == "crash" or (what == "crash once" and attempt == 0):
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "fill the disk":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if what == "raise":
        raise ValueError("no such room")
    if what == "mistake":
        raise UserError("policy.hidden_dims=[8]: expected [16, 16], as in its checkpoint")
    if what == "hang" and attempt == 0:
        time.sleep(600)
    if what == "spawn":  # a child that outlives its parent, were it not for the group
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
            os._exit(0)
        (folder / "grandchild").write_text(str(pid))


def deaf(folder: Path) -> int:
    """Never hears a signal that can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    (folder / "deaf").touch()
    time.sleep(600)
    return 0
