"""Where work runs: on the threads of this process, or on a dask cluster."""

from lockquack.parallel.cluster import cluster

__all__ = ["cluster"]
