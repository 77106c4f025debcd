"""The schemas of all servers of a cluster, looked at or brought up to date, without starting a node."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mqueue.config import Config
from mqueue.log.postgres import living, migrate
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.living import Running
from mqueue.model.errors import BadSetting, Error


class Schema(Struct, frozen=True):
    """Of one server: what version it had, which were applied, and which are to be. `nodes`: who is at work there.
    `problem`: why nothing could be done."""

    server: str
    version: int
    latest: int
    applied: tuple[int, ...] = ()
    nodes: tuple[Running, ...] = ()
    problem: Error | None = None

    @property
    def is_current(self) -> bool:
        return self.problem is None and self.version >= self.latest

    def __str__(self) -> str:
        if self.problem is not None:
            return str(self.problem)
        if self.applied:
            return f"{self.server}: brought to version {self.version} ({', '.join(map(str, self.applied))} applied)"
        if self.version == self.latest:
            return f"{self.server}: at version {self.version}, nothing to do"
        if self.version > self.latest:
            return f"{self.server}: at version {self.version}, newer than this mqueue ({self.latest}) and fit for it"
        found = f"at version {self.version}" if self.version else "no schema yet"
        return f"{self.server}: {found}, this mqueue needs {self.latest}"

    @property
    def steps(self) -> list[str]:
        """What would be done, a line each, and who is at work meanwhile."""
        told = [
            f"  would apply {number}, for nodes that know {migrate.least(number)} or later"
            for number in (migrate.to_do(self.version) if self.problem is None else ())
        ]
        needed = migrate.least(self.latest) if told else 0
        return told + [
            f"  {node}: {'has to be stopped first' if node.knows < needed else 'goes on'}" for node in self.nodes
        ]

    @property
    def is_blocked(self) -> bool:
        """Whether nodes are at work that could not live with what is to be done."""
        due = migrate.to_do(self.version) if self.version else []
        return bool(due) and bool(living.too_old(self.nodes, migrate.least(self.latest)))


def schemas(config: Config, *, change: bool) -> Iterator[Schema]:
    """Of every server in turn; trouble with one does not keep the others from being looked at."""
    if not config.cluster.databases:
        raise BadSetting("no cluster is configured: give its servers by cluster.databaseUrls (DATABASE_URLS)")
    links = [Link(url.reveal(), "migrate") for url in config.cluster.databases]
    for link in links:
        try:
            yield _schema(link, change)
        except Error as problem:
            yield Schema(link.server, 0, migrate.latest(), problem=problem)
        finally:
            link.close()


def _schema(link: Link, change: bool) -> Schema:
    applied = migrate.migrate(link) if change else []
    version = migrate.version_of(link)
    if version > migrate.latest():
        migrate.check(link)  # it says what to do
    nodes = living.running(link) if version else []
    return Schema(link.server, version, migrate.latest(), tuple(applied), tuple(nodes))
