"""The schemas of all servers of a cluster, looked at or brought up to date, without starting a node."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mqueue.config import Config
from mqueue.log.postgres import migrate
from mqueue.log.postgres.link import Link
from mqueue.model.errors import BadSetting, Error


class Schema(Struct, frozen=True):
    """Of one server: what version it had, and which were applied. `problem`: why nothing could be done."""

    server: str
    version: int
    latest: int
    applied: tuple[int, ...] = ()
    problem: Error | None = None

    @property
    def is_current(self) -> bool:
        return self.problem is None and self.version == self.latest

    def __str__(self) -> str:
        if self.problem is not None:
            return str(self.problem)
        if self.applied:
            return f"{self.server}: brought to version {self.version} ({', '.join(map(str, self.applied))} applied)"
        if self.is_current:
            return f"{self.server}: at version {self.version}, nothing to do"
        found = f"at version {self.version}" if self.version else "no schema yet"
        return f"{self.server}: {found}, this mqueue needs {self.latest}"


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
    return Schema(link.server, version, migrate.latest(), tuple(applied))
