"""The network of a cluster: paths, routes, and what messages and collectives take alone on it."""

from __future__ import annotations

from typing import Any, Literal, Sequence, TypedDict

from . import _orrery, values
from ._orrery import FlowEdge, Link

Collective = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]


class Path(TypedDict):
    """What one transfer sees when nothing else runs."""

    bandwidth: float
    latency: float
    kind: Literal["same_device", "nvlink", "pcie", "network", "host_staged"]


class Topology:
    """The links of a cluster, with the profile's measured link classes if there is one. Devices are
    ids of the cluster; one that it does not have raises IndexError."""

    def __init__(self, cluster: Any, profile: Any = None) -> None:
        self._topology = _orrery.Topology(values.load_cluster(cluster),
                                          values.load_profile(profile))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._topology, name)

    def links(self) -> list[Link]:
        """All links, by id."""
        return self._topology.links()

    def path(self, source: int, destination: int) -> Path:
        """Bandwidth of the narrowest link, sum of latencies, kind of path."""
        return self._topology.path(source, destination)

    def route(self, source: int, destination: int) -> list[int]:
        """Ids of the links from source to destination, in order."""
        return self._topology.route(source, destination)

    def point_to_point_time(self, source: int, destination: int, bytes: float) -> float:
        """Seconds of one message."""
        return self._topology.point_to_point_time(source, destination, bytes)

    def collective_time(self, kind: Collective, algorithm: Literal["ring", "tree", "hierarchical"],
                        group: Sequence[int], bytes: float) -> float:
        """Seconds of one collective in closed form; `bytes`: of the full (gathered, reduced)
        tensor; `group`: devices in ring order."""
        return self._topology.collective_time(kind, algorithm, list(group), bytes)

    def collective_flows(self, kind: Collective, group: Sequence[int],
                         bytes: float) -> list[FlowEdge]:
        """The flows of one collective by the ring algorithm, all started together."""
        return self._topology.collective_flows(kind, list(group), bytes)
