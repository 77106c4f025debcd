"""Starting things: a server, a worker."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from mqueue.cli.environment import told_by_environment
from mqueue.cli.session import Session
from mqueue.cli.verb import RUN, USE, local_verb, verb


def add_serve(app: typer.Typer) -> None:
    local_verb(app, "serve", RUN)(serve)


def add_worker(app: typer.Typer) -> None:
    verb(app, "worker", USE)(worker)


def serve(
    data_dir: Annotated[str | None, typer.Option("--data-dir", "-d", help="Where messages lie. [./data]")] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Keep them in memory only.")] = False,
    http: Annotated[str | None, typer.Option("--http", help="HOST:PORT; port 0: a free one. [127.0.0.1:8080]")] = None,
    grpc: Annotated[
        str | None, typer.Option("--grpc", help="Arrow Flight: HOST:PORT, or off. [127.0.0.1:9000]")
    ] = None,
    amqp: Annotated[str | None, typer.Option("--amqp", help="AMQP 0-9-1: HOST:PORT, or off. [127.0.0.1:5672]")] = None,
    config: Annotated[str | None, typer.Option("--config", "-c", help="A YAML file. [MQUEUE_CONFIG]")] = None,
    tls: Annotated[str | None, typer.Option("--tls", help="self-signed, or CERT.pem,KEY.pem.")] = None,
    set: Annotated[
        list[str] | None, typer.Option("--set", help="Any key of the configuration: logging.level=debug; repeatable.")
    ] = None,
) -> None:
    """Start a server. Once it listens it prints one line: ready http=127.0.0.1:8080 grpc=… amqp=…"""
    flags: dict[str, Any] = {"data-dir": data_dir, "memory": memory, "http": http, "grpc": grpc, "amqp": amqp}
    flags |= _tls(tls) | _keys(set or [])

    from mqueue.assembly.serve import serve as run
    from mqueue.config import Config, load

    def read() -> Config:
        return load(config, os.environ, flags)

    raise typer.Exit(run(read(), read))


def worker(
    session: Session,
    app: Annotated[str, typer.Argument(help="Where the Worker is: module:name.", show_default=False)],
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", min=1, help="Messages at once, of each handler.")
    ] = None,
) -> None:
    """Run the handlers of a Worker until told to stop."""
    from mqueue.client.worker.load import load_app

    with told_by_environment(session.context):
        load_app(app).run(concurrency=concurrency)


def _tls(given: str | None) -> dict[str, Any]:
    if given is None:
        return {}
    if given == "self-signed":
        return {"security.tls.selfSigned": True}
    certificate, comma, key = given.partition(",")
    if not comma:
        raise typer.BadParameter(f"{given!r:.80}; it takes self-signed, or CERT.pem,KEY.pem", param_hint="--tls")
    return {"security.tls.certFile": certificate, "security.tls.keyFile": key}


def _keys(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r:.80}; it takes key=value", param_hint="--set")
        found[name] = value
    return found
