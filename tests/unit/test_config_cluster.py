"""What makes a server a node of a cluster: URLs, addresses, what goes together. No password is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqueue.assembly.security import secrets_of
from mqueue.config import BadConfig, Config, Redis, Secret, load

ONE = "postgresql://mq:hunter22@one.example:5432/a"
TWO = "postgres://mq:hunter22@two.example/b?sslmode=verify-full"


def read(**variables: str) -> Config:
    return load(None, variables, dotenv=None)


def problems(**variables: str) -> tuple[str, ...]:
    with pytest.raises(BadConfig) as caught:
        read(**variables)
    assert "hunter2" not in str(caught.value)
    return caught.value.problems


def test_the_variables_of_a_sharded_queue() -> None:
    cluster = read(
        DATABASE_URLS=f"{ONE}, {TWO}",
        REDIS_ADDRS="r1:6379,r2:6379",
        REDIS_PASSWORD="hunter22",
        WAL_DIR="./wal",
        BUFFER_TTL="2m",
        MAX_BUFFER_LENGTH="5000",
    ).cluster
    assert cluster.databases == (Secret(ONE), Secret(TWO))
    assert cluster.redis == Redis(("r1:6379", "r2:6379"), password=Secret("hunter22"))
    assert (cluster.wal_dir, cluster.buffer_ttl_ms, cluster.buffer_length_max) == ("./wal", 120_000, 5_000)
    assert "hunter2" not in repr(cluster)


def test_urls_from_a_file_of_secrets(tmp_path: Path) -> None:
    (tmp_path / "urls").write_text(f"{ONE}\n{TWO}\n", encoding="utf-8")
    (tmp_path / "f").write_text(f"cluster: {{databaseUrlsFile: {tmp_path}/urls}}\n", encoding="utf-8")
    for config in (read(DATABASE_URLS_FILE=f"{tmp_path}/urls"), load(tmp_path / "f", {}, dotenv=None)):
        assert config.cluster.databases == (Secret(ONE), Secret(TWO))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://one.example/a",
        "postgresql://mq@one.example,two.example:5433/a?target_session_attrs=read-write",
        "postgresql:///a?host=/var/run/postgresql",
        "postgresql://%2Fvar%2Frun%2Fpostgresql/a",
        "postgresql://mq:p%40ss%2Fword,x@[::1]:5432/a",
    ],
)
def test_urls_as_libpq_takes_them(url: str) -> None:
    assert read(DATABASE_URLS=f"{url},{TWO}").cluster.databases == (Secret(url), Secret(TWO))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mysql://mq:hunter22@h/a", "(…@h/a) does not begin with postgresql://"),
        ("host=h dbname=a password=hunter22", "does not begin with postgresql://"),
        ("postgresql://mq:hunter22@h:x/a", "(…@h:x/a) has no host and port that can be read"),
        ("postgresql://mq:hunter22@h:70000/a", "(…@h:70000/a) has a port beyond 65535"),
        ("postgresql://mq:hunter22", "has no host and port that can be read"),
        ("postgresql://mq:hunter22@h", "(…@h) names no database"),
        ("postgresql://mq:hunter22@h/a/b", "(…@h/a/b) names no database, or more than one"),
        ("postgresql://mq:at@hunter22@h/a", "(…@h/a) has an @ too many"),
        ("postgresql://mq:slash/hunter22@h/a", "(…@h/a) has an @ too many"),
        ("postgresql://mq:hash#hunter22@h/a", "(…@h/a) has a # in it"),
        ("postgresql://mq:asks?hunter22@h/a", "has"),
        ("postgresql://mq:two hunter22@h/a", "has a blank"),
        ("postgresql://mq@[h:1/a?password=hunter22", "cannot be read: a bracket is open"),
        (ONE, "(…@one.example:5432/a) is URL 1 again: every shard has a database of its own"),
    ],
)
def test_urls_that_cannot_be_meant(url: str, why: str) -> None:
    (problem,) = problems(DATABASE_URLS=f"{ONE},{url}" if "postgres" in url else url)
    assert problem.startswith(f"DATABASE_URLS is (hidden); URL {2 if 'postgres' in url else 1} of ")
    assert why in problem
    assert "\n" not in problem


@pytest.mark.parametrize("text", ["r1", "r1:", ":6379", "redis://r1:6379", "u:hunter22@r1:6379", "r1:0", "r1:1,r1:1"])
def test_addresses_of_redis_that_cannot_be_meant(text: str) -> None:
    (problem,) = problems(DATABASE_URLS=ONE, MQUEUE_REDIS_ADDRS=text.replace("hunter22", "h"))
    assert problem.startswith("MQUEUE_REDIS_ADDRS is ")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"WAL_DIR": "w"}, "WAL_DIR is given, but cluster.redisAddrs (REDIS_ADDRS) is not: a log on one machine alone"),
        ({"REDIS_PASSWORD": "hunter22"}, "REDIS_PASSWORD is given, but cluster.redisAddrs (REDIS_ADDRS) is not"),
        ({"MQUEUE_DATA_DIR": "d"}, "MQUEUE_DATA_DIR is given beside cluster.databaseUrls: messages lie in one place"),
        ({"MQUEUE_STORAGE": "memory"}, "MQUEUE_STORAGE is memory beside cluster.databaseUrls"),
        (
            {"MQUEUE_HTTP": "0.0.0.0:80", "MQUEUE_PUBLIC_BIND": "yes"},
            "cluster.address is not given, and 0.0.0.0:80 tells other nodes nothing",
        ),
        ({"MQUEUE_HTTP": "[::]:80", "MQUEUE_PUBLIC_BIND": "yes"}, "cluster.address is not given, and [::]:80 tells"),
        ({"MQUEUE_CLUSTER_ADDRESS": "http://0.0.0.0:80"}, "MQUEUE_CLUSTER_ADDRESS is 'http://0.0.0.0:80'; nobody can"),
        ({"MQUEUE_CLUSTER_ADDRESS": "node-1:80"}, "MQUEUE_CLUSTER_ADDRESS is 'node-1:80'; it takes http://host:port"),
        ({"MQUEUE_CLUSTER_ADDRESS": "http://node-1:80/x"}, "MQUEUE_CLUSTER_ADDRESS is 'http://node-1:80/x'; it takes"),
        ({"MQUEUE_TLS_SELF_SIGNED": "yes"}, "MQUEUE_TLS_SELF_SIGNED is true in a cluster, whose nodes check"),
    ],
)
def test_what_does_not_go_together(given: dict[str, str], problem: str) -> None:
    (found,) = problems(DATABASE_URLS=ONE, **given)
    assert found.startswith(problem)


def test_a_node_that_speaks_tls_is_reached_by_it(tmp_path: Path) -> None:
    pair = {"MQUEUE_TLS_CERT_FILE": __file__, "MQUEUE_TLS_KEY_FILE": __file__}
    (problem,) = problems(DATABASE_URLS=ONE, MQUEUE_CLUSTER_ADDRESS="http://n:1", **pair)
    assert problem == "MQUEUE_CLUSTER_ADDRESS begins with http://, but the server speaks TLS: https://"
    assert read(DATABASE_URLS=ONE, MQUEUE_CLUSTER_ADDRESS="https://n:1", **pair).cluster.address == "https://n:1"


@pytest.mark.parametrize(
    "given", [{"REDIS_ADDRS": "r:1"}, {"WAL_DIR": "w"}, {"MQUEUE_CLUSTER_ADDRESS": "http://node-1:80"}]
)
def test_who_names_parts_of_a_cluster_names_its_servers(given: dict[str, str]) -> None:
    (problem,) = problems(**given)
    assert (
        problem == f"{next(iter(given))} is given, but cluster.databaseUrls (DATABASE_URLS) is not: there is no cluster"
    )


def test_a_password_alone_may_be_of_somebody_else() -> None:
    assert read(REDIS_PASSWORD="hunter22").cluster.databases == ()


def test_what_must_not_be_written_anywhere() -> None:
    config = read(DATABASE_URLS="postgresql://u:p%40ssword@h/a", REDIS_ADDRS="r:1", REDIS_PASSWORD="other")
    assert set(secrets_of(config)) == {"p%40ssword", "p@ssword", "other"}


def test_topics_of_a_cluster_have_six_partitions_unless_somebody_says_otherwise() -> None:
    assert read().topic.partitions == 1
    assert read(DATABASE_URLS=ONE).topic.partitions == 6
    for given in ({}, {"DATABASE_URLS": ONE}):
        assert read(MQUEUE_PARTITIONS="3", **given).topic.partitions == 3
        assert read(MQUEUE_PARTITIONS="1", **given).topic.partitions == 1
    assert read(DATABASE_URLS=ONE, MQUEUE_PARTITIONS="none").topic.partitions == 6
