"""The machine that a job runs on: GPUs, servers and network, by name or from one small file."""

from shardmath.machines.cluster import Cluster, Kind
from shardmath.machines.files import read_cluster, write_cluster
from shardmath.machines.gpu import Gpu
from shardmath.machines.links import Links
from shardmath.machines.network import Network

__all__ = ["Cluster", "Gpu", "Kind", "Links", "Network", "read_cluster", "write_cluster"]
