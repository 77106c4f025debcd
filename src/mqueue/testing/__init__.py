"""For the tests of programs that use mqueue: a clock that is moved by hand, pytest fixtures, servers of one's own."""

from mqueue.assembly.devcluster import DevCluster, NodeServer
from mqueue.assembly.postgres import PostgresServer
from mqueue.assembly.redis import RedisServer
from mqueue.assembly.replicas import Replicas
from mqueue.testing.clock import ManualClock

__all__ = ["DevCluster", "ManualClock", "NodeServer", "PostgresServer", "RedisServer", "Replicas"]
