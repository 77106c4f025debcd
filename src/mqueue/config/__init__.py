"""Configuration: a file, a `.env`, the environment and flags, read once into one frozen tree.

The keys are in docs/configuration.md. Does not know who reads the tree.
"""

from mqueue.config.given import BadConfig
from mqueue.config.load import load
from mqueue.config.pages import describe
from mqueue.config.tree import (
    Address,
    Cluster,
    Config,
    Dashboard,
    Data,
    Jwt,
    LakeTables,
    Logging,
    Metrics,
    NamespaceQuotas,
    RateLimit,
    Redis,
    Secret,
    Security,
    Server,
    Telemetry,
    Tls,
)

__all__ = [
    "Address",
    "BadConfig",
    "Cluster",
    "Config",
    "Dashboard",
    "Data",
    "Jwt",
    "LakeTables",
    "Logging",
    "Metrics",
    "NamespaceQuotas",
    "RateLimit",
    "Redis",
    "Secret",
    "Security",
    "Server",
    "Telemetry",
    "Tls",
    "describe",
    "load",
]
