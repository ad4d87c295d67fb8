"""Which devices there are. Looks at device files only: nothing may touch CUDA outside a job."""

import glob
import os
import re


def gpu_count() -> int:
    """GPUs that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    present = len([p for p in glob.glob("/dev/nvidia*") if re.fullmatch(r"/dev/nvidia\d+", p)])
    return min(present, len([d for d in visible.split(",") if d.strip()])) if visible is not None else present


def resolve_device(device: str) -> str:
    """``auto`` made concrete; anything else as it is."""
    if device != "auto":
        return device
    return "cuda" if gpu_count() else "cpu"
