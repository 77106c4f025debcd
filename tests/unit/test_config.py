"""A configuration comes from four places, the later wins, and everything that is wrong is said at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mqueue.config import Address, BadConfig, Config, describe, load
from mqueue.config.keys import KEYS, PARTS, Key
from mqueue.config.pages import example, table
from mqueue.config.topics import topic_values
from mqueue.lake import FORMATS
from mqueue.model.settings import Settings
from mqueue.model.settings import describe as describe_settings

ROOT = Path(__file__).resolve().parents[2]
SHARD = "postgresql://mq:pass%40word@db.example:5432/shard"
STRONG = "xK4v-0pQ7_zR9tW2mN5bL8cJ1hG6fD3s"


class House:
    """A directory with a file and a `.env`, and what is asked of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, text: str, name: str = "config.yaml") -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def load(
        self,
        text: str | None = None,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, Any] | None = None,
        dotenv: str | None = None,
    ) -> Config:
        path = None if text is None else self.file(text)
        local = None if dotenv is None else self.file(dotenv, ".env")
        return load(path, environ or {}, flags or {}, dotenv=local)

    def problems(self, *given: Any, **named: Any) -> list[str]:
        with pytest.raises(BadConfig) as caught:
            self.load(*given, **named)
        return [problem.replace(f"{self.folder}/", "") for problem in caught.value.problems]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


# Precedence


def test_nothing_given_is_the_defaults(house: House) -> None:
    assert house.load() == Config() == house.load("") == house.load("broker:\n")


def test_the_later_source_wins(house: House) -> None:
    text, dotenv = "logging: {level: error}", "LOG_LEVEL=warn"
    environ, flags = {"LOG_LEVEL": "debug"}, {"logging.level": "info"}
    assert house.load(text).logging.level == "error"
    assert house.load(text, dotenv=dotenv).logging.level == "warn"
    assert house.load(text, environ, dotenv=dotenv).logging.level == "debug"
    assert house.load(text, environ, flags, dotenv).logging.level == "info"


def test_our_own_variable_wins_over_its_other_names_and_an_empty_one_is_not_set(house: House) -> None:
    assert house.load(environ={"MQUEUE_MAX_RETRIES": "7", "GOMQ_MAX_RETRIES": "8"}).topic.max_retries == 7
    assert house.load(environ={"MQUEUE_MAX_RETRIES": "", "GOMQ_MAX_RETRIES": "8"}).topic.max_retries == 8
    assert house.load("logging: {level: error}", {"LOG_LEVEL": ""}).logging.level == "error"


def test_a_file_is_named_by_argument_flag_or_variable(house: House) -> None:
    path = str(house.file("logging: {level: error}", "named.yaml"))
    for given in (
        {"flags": {"config": path}},
        {"environ": {"MQUEUE_CONFIG": path}},
        {"dotenv": f"MQUEUE_CONFIG={path}"},
    ):
        assert house.load(**given).logging.level == "error"
    assert house.problems(environ={"MQUEUE_CONFIG": f"{path}x"}) == [
        "named.yamlx: cannot be read: No such file or directory"
    ]


def test_the_flags_of_the_command_line(house: House) -> None:
    flags = {"http": "127.0.0.1:0", "grpc": "off", "amqp": ":5673", "data_dir": "d", "config": None, "memory": False}
    config = house.load(environ={"GOMQ_STORAGE": "memory"}, flags=flags)
    assert (config.server.http, config.server.grpc) == (Address("127.0.0.1", 0), None)
    assert config.server.amqp == Address("127.0.0.1", 5673)
    assert (config.data.dir, config.data.memory) == ("d", False)  # who names a directory wants it
    assert house.load(flags={"memory": True}).data.memory
    assert house.problems(flags={"memory": True, "data-dir": "d", "htp": 1}) == [
        "--memory and --data-dir: give one of them",
        "--htp: unknown flag; did you mean http?",
    ]


# Every key

OTHER: dict[str, tuple[str, Any]] = {
    "broker.nodeId": ("node-1", "node-1"),
    "broker.storage": ("memory", "memory"),
    "broker.dataDir": ("/var/lib/mqueue", "/var/lib/mqueue"),
    "security.auth": ("jwt", ["jwt"]),
    "security.jwt.secret": (STRONG, "********"),
    "security.jwt.algorithms": ("RS256,ES256", ["RS256", "ES256"]),
    "security.trustedProxies": ("10.0.0.0/8, 192.0.2.7", ["10.0.0.0/8", "192.0.2.7/32"]),
    "quotas.namespaces": ("tenant-a:1000,tenant-b:500", {"tenant-a": 1000, "tenant-b": 500}),
    "defaults.topic.overflow": ("drop_oldest", "drop_oldest"),
    "defaults.topic.start": ("latest", "latest"),
    "defaults.topic.dedup.mode": ("forever", "forever"),
    "defaults.delivery.dlqTopic": ("graveyard", "graveyard"),
    "defaults.delivery.backoff": ("500ms", "500ms"),
    "defaults.delivery.policy": ("ageing", "ageing"),
    "defaults.delivery.onFailure": ("skip", "skip"),
    "defaults.topic.replicationFactor": ("1", 1),
    "defaults.priority.lanes": ("3", 3),
    "lake.url": ("s3://bucket/lake", "s3://bucket/lake"),
    "lake.format": ("iceberg", "iceberg"),
    "cluster.databaseUrls": (f"{SHARD}1,postgres://u@[::1]:5433/b?sslmode=require", ["********"] * 2),
    "cluster.address": ("https://node-1.example:8443/", "https://node-1.example:8443"),
    "cluster.redisAddrs": ("localhost:6379, [::1]:6380", ["localhost:6379", "[::1]:6380"]),
    "cluster.redisUsername": ("queue", "queue"),
    "cluster.redisSentinel": ("mymaster", "mymaster"),
    "cluster.walDir": ("/var/lib/mqueue/wal", "/var/lib/mqueue/wal"),
    "telemetry.endpoint": ("https://c.example:4318/", "https://c.example:4318/v1/traces"),
    "telemetry.headers": ("authorization=Bearer abc", "********"),
    "telemetry.sampleRatio": ("0.25", 0.25),
    "telemetry.serviceName": ("queue", "queue"),
    "logging.level": ("warning", "warn"),
    "logging.encoding": ("console", "console"),
    "security.jwt.issuer": ("https://id.example", "https://id.example"),
    "security.jwt.audience": ("queue", "queue"),
    "security.tls.clients": (
        "dns:a=read:x write:x/y.*;dns:b=admin:*",
        {"dns:a": "read:x write:x/y.*", "dns:b": "admin:*"},
    ),
    "security.jwt.maxLifetime": ("1h", "1h"),
    "security.jwt.leeway": ("5s", "5s"),
    "server.maxHeadersSize": ("3KB", "3KiB"),
    "limits.maxKeySize": ("3k", "3KiB"),
    "limits.maxHeadersSize": ("3072", "3KiB"),
}
REDIS = {"cluster.databaseUrls": SHARD, "cluster.redisAddrs": "localhost:6379"}
TOGETHER = {
    "security.auth": {"security.jwt.secret": STRONG},
    "security.tls.clients": {"security.tls.clientCaFile": __file__, "security.tls.selfSigned": "true"},
    "security.jwt.previousSecret": {"security.jwt.secret": STRONG},
    "security.tls.clientCaFile": {"security.tls.selfSigned": "true"},
    "security.tls.certFile": {"security.tls.keyFile": __file__},
    "security.tls.keyFile": {"security.tls.certFile": __file__},
    "cluster.address": {"cluster.databaseUrls": SHARD},
    "cluster.caFile": {"cluster.databaseUrls": SHARD},
    "cluster.redisAddrs": {"cluster.databaseUrls": SHARD},
    "cluster.redisUsername": REDIS,
    "cluster.redisPassword": REDIS,
    "cluster.redisSentinel": REDIS,
    "cluster.redisTls": REDIS,
    "cluster.redisCaFile": {**REDIS, "cluster.redisTls": "true"},
    "cluster.walDir": REDIS,
}
TAKEN = list(KEYS.values())


def another(key: Key) -> tuple[str, Any]:
    """A value that is not the default, and how it is shown."""
    if key.path in OTHER:
        return OTHER[key.path]
    if key.secret:
        return STRONG, "********"
    takes = key.kind.takes
    if takes.startswith("HOST:PORT"):
        return "localhost:1234", "localhost:1234"
    if takes.startswith("true or false"):
        now = described(Config(), key.path)
        return ("no", False) if now else ("yes", True)
    if takes.startswith("the path of a file"):
        return __file__, __file__
    for start, text, shown in (
        ("a duration", "2m", "2m"),
        ("a size", "2MB", "2MiB"),
        ("a whole number", "17", 17),
        ("a number", "17.5", 17.5),
    ):
        if takes.startswith(start):
            return text, shown
    raise AssertionError(f"no example for {key.path}, which takes {takes}")


def described(config: Config, path: str) -> Any:
    value: Any = describe(config)
    for step in path.split("."):
        value = value[step]
    return value


@pytest.mark.parametrize("key", TAKEN, ids=lambda key: key.path)
def test_every_key_is_taken_from_every_source(house: House, key: Key) -> None:
    text, shown = another(key)
    beside = TOGETHER.get(key.path, {})
    for variable in key.variables:
        assert described(house.load(environ={variable: text}, flags=beside), key.path) == shown
        assert described(house.load(dotenv=f"{variable}='{text}'", flags=beside), key.path) == shown
    assert described(house.load(flags={**beside, key.path: text}), key.path) == shown
    *above, name = key.path.split(".")
    lines = [f"{'  ' * depth}{step}:" for depth, step in enumerate(above)] + [f"{'  ' * len(above)}{name}: '{text}'"]
    assert described(house.load("\n".join(lines), flags=beside), key.path) == shown


@pytest.mark.parametrize("key", [key for key in TAKEN if not key.secret], ids=lambda key: key.path)
def test_every_key_refuses_nonsense_and_says_what_it_takes(house: House, key: Key) -> None:
    (problem,) = house.problems(environ={key.variables[0]: "\x00 ? "})
    assert problem.startswith(f"{key.variables[0]} is ")
    assert "? " in problem


def test_what_is_described_loads_to_the_same(house: House) -> None:
    for environ in ({}, {"MQUEUE_GRPC": "off", "MQUEUE_DELAY_ENABLED": "no", "MQUEUE_RETENTION_HOURS": "none"}):
        config = house.load(environ=environ)
        assert house.load(json.dumps(describe(config))) == config


def test_every_setting_of_a_topic_has_a_key() -> None:
    fields = {key.field for key in KEYS.values() if key.field}
    assert {f"topic.{name}" for name in topic_values(Settings())} == {
        name for name in fields if name.startswith("topic.")
    }
    several = ("retention", "weights", "fairness", "labels")
    assert {f"topic.{name}" for name in describe_settings(Settings()) if name not in several} <= fields


def test_a_lake_has_the_formats_that_can_be_opened() -> None:
    assert KEYS["lake.format"].kind.takes == " or ".join(FORMATS)


# Pages


def test_the_example_is_made_from_the_keys_and_loads_to_the_defaults() -> None:
    path = ROOT / "config.example.yaml"
    assert path.read_text(encoding="utf-8") == example()
    assert load(path, {}, dotenv=None) == Config()


@pytest.mark.parametrize("part", PARTS)
def test_the_page_has_the_table_of_each_part(part: str) -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {part}\n")[1].split("\n## ")[0]
    assert table(part).strip() in section, f"docs/configuration.md, {part}, takes this table:\n{table(part)}"
    assert section.count("\n|") == table(part).count("\n")


def test_the_page_shows_problems_as_they_are(house: House) -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    shown = page.split("```\n")[1].splitlines()
    text = "\n\n\n\ndefaults:\n  delivery:\n    maxRetries: many\nbroker:\n  dataDirectory: x"
    found = house.problems(text, {"JWT_SECRET": "secret"})
    assert sorted(found) == sorted(shown)


# Together


def test_all_problems_come_at_once(house: House) -> None:
    text = """\
broker:
  nodeId: "node 1"
  listener: {http: ":8080"}
  listeners:
    http: 0.0.0.0:8080
defaults:
  topic:
    partitions: 0
    replicationFactor: 2
  visibilityTimeout: 30s
  delay: 5m
loging: {level: info}
"""
    environ = {"JWT_SECRET": "secret", "GOMQ_MAX_RETRY": "3", "NAMESPACE_QUOTAS": "a:b", "BUFFER_TTL": "long"}
    assert house.problems(text, environ, dotenv="LOG_LEVEL=loud\n?", flags={"grpc": "9000"}) == [
        "config.yaml:3: unknown key 'broker.listener'; did you mean listeners?",
        "config.yaml:10: unknown key 'defaults.visibilityTimeout'; did you mean defaults.delivery.visibilityTimeout?",
        "config.yaml:11: defaults.delay takes a mapping of enabled, maxDelay, dueRate",
        "config.yaml:12: unknown key 'loging'; did you mean logging?",
        ".env:2: is not NAME=value, or a quote is left open",
        "GOMQ_MAX_RETRY: unknown variable; did you mean GOMQ_MAX_RETRIES?",
        "config.yaml:2: broker.nodeId is 'node 1'; it takes a name of letters, digits, '.', '_' and '-'; of numbers 0"
        " to 1023, or none",
        "config.yaml:8: defaults.topic.partitions is '0'; it takes a whole number from 1 to 1024, or none",
        "config.yaml:9: defaults.topic.replicationFactor is '2'; it takes 1: one node keeps one copy; copies of the"
        " data directory are made below it",
        ".env:1: LOG_LEVEL is 'loud'; it takes debug or info or warn or error",
        "NAMESPACE_QUOTAS is 'a:b'; it takes namespaces with messages a minute, as tenant-a:1000,tenant-b:500",
        "BUFFER_TTL is 'long'; it takes a duration such as 250ms, 30s, 5m, 12h, 7d from 1s to 1d",
        "--grpc is '9000'; it takes HOST:PORT, where port 0 is a free one, or off",
        "JWT_SECRET is too weak: at least 32 bytes that nobody guesses; make one with `openssl rand -base64 48`",
        "config.yaml:5: broker.listeners.http is 0.0.0.0:8080, open to the outside, and takes TLS and auth then"
        " (security.tls, security.auth); where something in front of it does that, security.publicBind: true",
    ]


def test_long_values_are_shortened(house: House) -> None:
    (problem,) = house.problems(environ={"LOG_LEVEL": "x" * 10_000})
    assert len(problem) < 150


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"security.auth": "jwt"}, "security.auth is jwt, but there is no secret"),
        ({"security.auth": "keys", "security.keys.pepper": STRONG, "memory": True}, "a broker in memory"),
        ({"security.auth": "keys"}, "--security.auth is keys, but there is no security.keys.pepper"),
        ({"security.keys.pepper": "pepper"}, "--security.keys.pepper is too weak"),
        ({"security.tls.clients": "dns:a=read:x"}, "nobody could prove to be one"),
        ({"security.tls.clients": "dns:a=sing:x"}, "sing"),
        ({"security.tls.clients": "dns:a"}, "subjects with what they may do"),
        ({"security.tls.certFile": __file__}, "is given, but security.tls.keyFile is not"),
        ({"security.tls.keyFile": __file__}, "is given, but security.tls.certFile is not"),
        ({"security.tls.clientCaFile": __file__}, "TLS is off"),
        ({"security.jwt.previousSecret": STRONG}, "no secret that follows"),
        ({"security.jwt.secret": STRONG, "security.jwt.jwksFile": __file__}, "beside a secret"),
        ({"security.jwt.secret": STRONG, "security.jwt.algorithms": "RS256"}, "take only HS256"),
        ({"security.jwt.secret": STRONG, "security.jwt.algorithms": "HS512"}, "some of HS256, RS256, ES256"),
        ({"security.jwt.secret": "secret" * 10}, "too weak"),
        ({"security.jwt.jwksFile": __file__, "security.jwt.algorithms": "HS256"}, "with public keys"),
        ({"security.jwt.algorithms": "none"}, None),
        ({"http": ":5672"}, "is 127.0.0.1:5672, as broker.listeners.http is"),
        ({"http": ":0", "grpc": ":0", "amqp": ":0"}, None),
        ({"amqp": "mq.example.org:5672"}, "open to the outside"),
        ({"http": "[::]:80"}, "is [::]:80, open to the outside"),
        ({"http": "[::1]:80"}, None),
        ({"http": "0.0.0.0:80", "security.publicBind": True}, None),
        ({"http": "0.0.0.0:80", "security.jwt.secret": STRONG, "security.tls.selfSigned": True}, None),
        ({"http": "0.0.0.0:80", "security.jwt.secret": STRONG}, "takes TLS and auth"),
        ({"limits.maxCallSize": "1KiB"}, "is less than one message"),
        ({"server.maxBodySize": "1MiB"}, "as base64"),
        ({"limits.maxMessageSize": "7MiB", "limits.maxHeadersSize": "512KiB"}, None),
        ({"defaults.delivery.backoff": "2m"}, "backoff_max (60000 ms) is below backoff (120000 ms)"),
        ({"defaults.delivery.backoff": "2m", "defaults.delivery.backoffMax": "3m"}, None),
        ({"defaults.delivery.dlqTopic": "x", "defaults.delivery.dlqEnabled": False}, "dlqEnabled is false"),
        ({"security.rateLimit.perSecond": True}, "a whole number from 1 to 1000000, or none"),
    ],
)
def test_values_that_do_not_go_together(house: House, flags: dict[str, Any], sentence: str | None) -> None:
    if sentence is None:
        house.load(flags=flags)
    else:
        (problem,) = house.problems(flags=flags)
        assert sentence in problem


def test_auth_follows_what_there_is(house: House) -> None:
    def ways(**given: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        security = house.load(environ=given).security
        return security.auth, security.jwt.algorithms

    assert ways() == ((), ())
    assert ways(JWT_SECRET=STRONG) == (("jwt",), ("HS256",))
    assert ways(MQUEUE_JWKS_FILE=__file__) == (("jwt",), ("RS256", "ES256"))
    assert ways(JWT_SECRET=STRONG, MQUEUE_AUTH="off")[0] == ()
    assert ways(JWT_SECRET=STRONG, MQUEUE_KEYS_PEPPER=STRONG, MQUEUE_AUTH="jwt,keys")[0] == ("jwt", "keys")
