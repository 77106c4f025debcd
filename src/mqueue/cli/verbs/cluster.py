"""A cluster: its schemas, and a whole one on this machine for trying it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqueue.cli import exits
from mqueue.cli.verb import RUN, local_verb

if TYPE_CHECKING:
    from mqueue.assembly.devcluster import DevCluster

_LOOK_SECONDS = 1.0


def add(app: typer.Typer) -> None:
    local_verb(app, "migrate", RUN)(migrate)
    local_verb(app, "dev-cluster", RUN)(dev_cluster)


def migrate(
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; 1 if something is to be done, 2 if that cannot be done now."),
    ] = False,
    config: Annotated[str | None, typer.Option("--config", "-c", help="A YAML file. [MQUEUE_CONFIG]")] = None,
) -> None:
    """Bring the schemas of a cluster up to date: of every server of DATABASE_URLS."""
    from mqueue.config import load

    told = load(config, os.environ)
    try:
        from mqueue.assembly.migrating import schemas
    except ModuleNotFoundError as error:
        exits.complain(f"a cluster needs {error.name}: pip install 'mqueue[cluster]'")
        raise typer.Exit(exits.FAILED) from None
    code = exits.OK
    for schema in schemas(told, change=not check):
        if schema.problem is not None:
            exits.complain(str(schema))
            code = exits.USAGE if check else exits.code_of(schema.problem)
            continue
        print("\n".join([str(schema), *(schema.steps if check else ())]), flush=True)
        if schema.is_blocked:
            code = exits.USAGE
        elif not schema.is_current:
            code = code or exits.FAILED
    raise typer.Exit(code)


def dev_cluster(
    shards: Annotated[int, typer.Option("--shards", help="PostgreSQL servers.")] = 2,
    nodes: Annotated[int, typer.Option("--nodes", help="Servers of ours.")] = 2,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="Of the first node, the others follow; 0: free ones.")
    ] = 8080,
    no_redis: Annotated[bool, typer.Option("--no-redis", help="Without Redis, and so without durability wal.")] = False,
    dir: Annotated[str | None, typer.Option("--dir", help="Keep everything there; else it goes at the end.")] = None,
) -> None:
    """Start a whole cluster on this machine, PostgreSQL and Redis included, until told to stop."""
    from mqueue.assembly.devcluster import DevCluster

    with _ended_by_signals():
        place = None if dir is None else Path(dir)
        with DevCluster(place, shards=shards, nodes=nodes, redis=not no_redis, port=port or None) as cluster:
            print(_ready(cluster), flush=True)
            _watch(cluster)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Either signal is the ordinary end, from the first moment on."""

    def told(*signal_and_frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, told)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(exits.OK) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _ready(cluster: DevCluster) -> str:
    """What is needed to use it. Passwords are in the files of the nodes, which only their owner can read."""
    parts = {
        "http": ",".join(node.url.removeprefix("http://") for node in cluster.nodes),
        "postgres": ",".join(url.rpartition("@")[2] for url in cluster.databases),
        "redis": "" if cluster.redis is None else f"127.0.0.1:{cluster.redis.port}",
        "config": str(cluster.nodes[0].directory / "config.yaml"),
    }
    return " ".join(["ready", *(f"{name}={value}" for name, value in parts.items() if value)])


def _watch(cluster: DevCluster) -> None:
    """Say what ends before its time, each once. Whoever wants to see what happens then may end it himself."""
    servers = {f"shard{number}": server for number, server in enumerate(cluster.shards)}
    named: dict[str, Any] = servers | {f"node{number}": node for number, node in enumerate(cluster.nodes)}
    if cluster.redis is not None:
        named["redis"] = cluster.redis
    never = threading.Event()
    while True:
        for name in [name for name, server in named.items() if not server.runs]:
            exits.complain(f"{name} has ended; its log is {named.pop(name).log}")
        never.wait(_LOOK_SECONDS)
