"""Run once, in a process of its own, before the first job."""


def compile_kernels() -> None:
    """Fill Warp's kernel cache with all that jobs use on a CPU: seconds the first time, milliseconds after.

    Jobs that compile the same kernel at the same time can crash one another.
    """
    import warp

    import orchestrator.job.run  # noqa: F401 - brings every module that has kernels

    warp.force_load("cpu")
