"""Files, variables and secrets, read without being trusted; and the names that other systems gave their keys."""

from __future__ import annotations

import json
import logging
import traceback
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.broker.broker import Broker
from mqueue.config import Address, BadConfig, Config, Secret, describe, load
from mqueue.config.document import FILE_BYTES_MAX, from_file
from mqueue.config.keys import KEYS
from mqueue.config.variables import from_dotenv
from mqueue.log.segments.storage import Storage
from mqueue.model.limits import KIB, MIB
from mqueue.model.settings import Retention
from mqueue.model.settings import describe as describe_settings
from mqueue.policy.quota import Quotas
from mqueue.server.security.keys import Keys
from mqueue.server.security.peers import Proxies, RateLimit
from mqueue.server.security.signing import key_from_secret
from mqueue.server.security.tokens import Verifier

STRONG = "xK4v-0pQ7_zR9tW2mN5bL8cJ1hG6fD3s"
OTHER = STRONG[::-1]


def read(path: Path, text: str) -> Config:
    path.write_text(text, encoding="utf-8")
    return load(path, {}, dotenv=None)


def problems(path: Path, text: str | bytes) -> list[str]:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(BadConfig) as caught:
        load(path, {}, dotenv=None)
    return [problem.replace(f"{path}", "f") for problem in caught.value.problems]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


# Names of others

SEED_FILE = """\
broker:
  nodeId: "node-1"
  dataDir: "/var/lib/queue"
  listeners:
    http: ":8080"
    grpc: ":9000"
defaults:
  topic:
    partitions: 6
    replicationFactor: 1
    retention:
      hours: 168
      bytes: 10737418240
  delivery:
    visibilityTimeout: 30s
    maxRetries: 3
    dlqEnabled: true
  delay:
    enabled: true
    maxDelay: 168h
  priority:
    lanes: 3
"""


def test_a_file_with_the_keys_of_others(path: Path) -> None:
    config = read(path, SEED_FILE)
    assert (config.data.node, config.data.dir) == ("node-1", "/var/lib/queue")
    assert (config.server.http, config.server.grpc) == (Address("127.0.0.1", 8080), Address("127.0.0.1", 9000))
    topic = config.topic
    assert (topic.partitions, topic.retention) == (6, Retention(hours=168.0, bytes=10 * 1024 * MIB))
    assert (topic.visibility_ms, topic.max_retries, topic.dlq) == (30_000, 3, True)
    assert topic.max_delay_ms == 7 * 24 * 3600 * 1000
    assert read(path, SEED_FILE.replace("enabled: true", "enabled: false")).topic.max_delay_ms == 0
    assert read(path, SEED_FILE.replace("dlqEnabled: true", "dlqEnabled: no")).topic.dlq is False


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "Factor: 1",
            "Factor: 2",
            "f:10: defaults.topic.replicationFactor is '2'; it takes 1: one node",
        ),
        ("lanes: 3", "lanes: 4", "f:22: defaults.priority.lanes is '4'; it takes 3: high, normal and low"),
    ],
)
def test_keys_of_others_that_can_have_one_value_here(path: Path, old: str, new: str, sentence: str) -> None:
    (problem,) = problems(path, SEED_FILE.replace(old, new))
    assert problem.startswith(sentence)


@pytest.mark.parametrize("prefix", ["GOMQ_", "MQUEUE_"])
def test_the_variables_of_an_embedded_queue(prefix: str) -> None:
    texts = {
        "STORAGE": "memory",
        "DATA_DIR": "./elsewhere",
        "DEFAULT_TTL": "24h",
        "MAX_MESSAGE_SIZE": "2MB",
        "MAX_QUEUE_DEPTH": "100000",
        "MAX_RETRIES": "5",
        "LISTEN_ADDR": ":5673",
    }
    config = load(None, {prefix + name: text for name, text in texts.items()}, dotenv=None)
    assert (config.data.memory, config.data.dir) == (True, "./elsewhere")
    assert (config.topic.default_ttl_ms, config.topic.max_depth, config.topic.max_retries) == (86_400_000, 100_000, 5)
    assert (config.limits.payload_bytes_max, config.server.amqp) == (2 * MIB, Address("127.0.0.1", 5673))


def test_the_variables_of_a_sharded_queue_that_one_node_has() -> None:
    texts = {
        "MQUEUE_NODE_ID": "1",
        "LOG_LEVEL": "debug",
        "LOG_ENCODING": "console",
        "JWT_SECRET": STRONG,
        "NAMESPACE_QUOTAS": "tenant-a:1000,tenant-b:500",
        "REDIS_PASSWORD": "",
    }
    config = load(None, texts, dotenv=None)
    assert (config.data.node, config.logging.level, config.logging.encoding) == ("1", "debug", "console")
    assert config.security.jwt.secret == Secret(STRONG)
    assert config.security.auth == ("jwt",)
    assert config.quotas.namespaces == {"tenant-a": 1000, "tenant-b": 500}


def test_a_number_that_no_id_has_room_for_is_no_node() -> None:
    with pytest.raises(BadConfig, match="MQUEUE_NODE_ID is '1024'"):
        load(None, {"MQUEUE_NODE_ID": "1024"}, dotenv=None)


# Values


def test_sizes_durations_and_lists_as_people_write_them(path: Path) -> None:
    config = read(
        path,
        """\
storage: {segmentSize: 128 MB, cacheSize: 0, scrubHours: 0.5}
server: {idleTimeout: 1m30s, drainTimeout: 0.25, headersTimeout: 5}
security: {auth: [keys], keys: {pepper: xK4v-0pQ7_zR9tW2mN5bL8cJ1hG6fD3s}, trustedProxies: [10.0.0.0/8, "::1"]}
quotas: {default: 5, namespaces: {a: 1, b: 0}}
defaults: {topic: {retention: {hours: null}}, delivery: {maxRetries: none}}
""",
    )
    assert config.data.storage == Storage(segment_bytes=128 * MIB, cache_bytes=0, scrub_hours=0.5)
    server = config.server
    assert (server.idle_timeout_ms, server.drain_timeout_ms, server.headers_timeout_ms) == (90_000, 250, 5_000)
    assert config.security.trusted_proxies == ("10.0.0.0/8", "::1/128")
    assert (config.quotas.default, dict(config.quotas.namespaces)) == (5, {"a": 1, "b": 0})
    assert config.topic.retention == Retention(hours=None)
    assert config.topic.max_retries is None


def test_off_is_a_word_and_not_a_boolean(path: Path) -> None:
    config = read(path, "broker: {listeners: {grpc: off, amqp: 'off'}}\nsecurity: {auth: off}")
    assert (config.server.grpc, config.server.amqp, config.security.auth) == (None, None, ())


def test_a_null_where_a_value_has_to_be(path: Path) -> None:
    (problem,) = problems(path, "broker:\n  dataDir:\n")
    assert problem == "f:2: broker.dataDir is empty; it takes a path"


def test_the_tree_is_frozen() -> None:
    config = load(None, {"NAMESPACE_QUOTAS": "a:1"}, dotenv=None)
    with pytest.raises(AttributeError):
        config.server.http = None  # type: ignore[misc, assignment]
    with pytest.raises(TypeError):
        config.quotas.namespaces["a"] = 2  # type: ignore[index]


def test_what_is_taken_here_is_taken_by_the_parts(tmp_path: Path) -> None:
    texts = {
        "JWT_SECRET": STRONG,
        "MQUEUE_KEYS_PEPPER": OTHER,
        "MQUEUE_AUTH": "jwt,keys",
        "MQUEUE_TRUSTED_PROXIES": "10.0.0.0/8",
        "MQUEUE_RATE_LIMIT": "10",
        "NAMESPACE_QUOTAS": "a:1",
        "MQUEUE_DATA_DIR": str(tmp_path / "data"),
    }
    config = load(None, texts, dotenv=None)
    security, jwt = config.security, config.security.jwt
    assert jwt.secret is not None
    assert security.keys_pepper is not None
    assert security.rate_limit.per_second is not None
    seconds = jwt.leeway_ms // 1000, jwt.lifetime_max_ms // 1000
    Verifier([key_from_secret(jwt.secret.reveal())], jwt.issuer, jwt.audience, jwt.algorithms, *seconds)
    Keys(security.keys_pepper.reveal().encode())
    Proxies(security.trusted_proxies)
    RateLimit(security.rate_limit.per_second, security.rate_limit.burst)
    Quotas(config.quotas.namespaces, config.quotas.default)
    settings = describe_settings(config.topic)
    with Broker(config.data.dir, limits=config.limits, storage=config.data.storage, **settings) as broker:
        assert broker.configure("orders") == settings


# Hostile files


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("logging:\n  level: info\n  level: warn", "f:3: 'level' stands there twice, first in line 2"),
        ("logging: {}\nlogging: {}", "f:2: 'logging' stands there twice, first in line 1"),
        ("quotas: {namespaces: {a: 1, a: 2}}", "f:1: 'a' stands there twice, first in line 1"),
        ("a: &x [1]\nb: *x", "f:1: anchors and aliases are not taken"),
        ("a: &x {b: 1}\n<<: *x", "f:1: anchors and aliases are not taken"),
        ("logging: !!python/object/apply:os.system [id]", "f:1: tags ("),
        ("logging: !secret x", "f:1: tags ("),
        ("logging: {level: !!str info}", "f:1: tags ("),
        ("[" * 50_000, "f:1: nested deeper than 16"),
        ("a:\n" + "".join(" " * n + "a:\n" for n in range(1, 100)), "nested deeper than 16"),
        ("- broker", "f:1: the file takes a mapping of broker, server"),
        ("broker: 5", "f:1: broker takes a mapping of nodeId"),
        ("logging: {level: [[info]]}", "f:1: logging.level is nested too deep for a value"),
        ("? [a, b]\n: 1", "f:1: a key below the file is not a name"),
        ("<<: {logging: {level: info}}", "f:1: unknown key '<<'"),
        ("a: b: c", "f:1: is not YAML: mapping values are not allowed here"),
        ("--- {}\n--- {}", "is not YAML"),
        ('logging: {level: "\\UFFFFFFFF"}', "is not YAML"),
        ("\x00", "is not YAML: it holds characters that are not allowed"),
        (b"\xff\xfe", "f: is not UTF-8"),
        ("#" * (FILE_BYTES_MAX + 1), f"f: is longer than {FILE_BYTES_MAX} bytes"),
        ("logging: {level: {a: b}}", "f:1: logging.level is ['a']; it takes debug"),
        ("security: {jwt: {secretFile: [a]}}", "f:1: security.jwt.secretFile takes the path of a file"),
        ("security: {trustedProxies: 10.0.0.1/8}", "it takes networks such as"),
        ("quotas: {namespaces: 'a:1,a:2'}", "a namespace is named twice"),
        ("limits: {maxMessageSize: 1.0000001}", "it takes a size"),
        ('security: {jwt: {secret: "\\uD800"}}', "f:1: security.jwt.secret is (hidden); it takes a text"),
    ],
)
def test_what_no_configuration_needs_is_refused(path: Path, text: str | bytes, sentence: str) -> None:
    (problem,) = problems(path, text)
    assert sentence in problem


def test_a_bomb_does_not_go_off(path: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (problem,) = problems(path, "\n".join(rows))
    assert "anchors and aliases" in problem


def test_a_broken_file_shows_nothing_of_itself(path: Path) -> None:
    (problem,) = problems(path, "security:\n  jwt:\n    secret: 'hunter2\n")
    assert "hunter2" not in problem


def test_an_unknown_key_shows_no_value(path: Path) -> None:
    (problem,) = problems(path, f"security: {{jwt: {{secrett: {STRONG}}}}}")
    assert problem == "f:1: unknown key 'security.jwt.secrett'; did you mean secret?"


@given(st.text() | st.text(alphabet=" \n:-[]{}&*!'\"#?|>\\abU0") | st.sampled_from(list(KEYS)).map("{}: 1".format))
def test_any_text_is_a_file_or_a_problem(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    from_file(path)
    from_dotenv(path)


@given(st.sampled_from(sorted(KEYS)), st.text() | st.text(alphabet="0123456789._:,-kKiBMsmhd[]/") | st.lists(st.text()))
def test_any_value_is_taken_or_a_problem(path: str, value: str | list[str]) -> None:
    try:
        config = load(None, {}, {path: value}, dotenv=None)
    except BadConfig:
        return
    json.dumps(describe(config))


# .env


def test_a_dotenv_is_read_as_shells_do(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(
        "# comment\n\n"
        "A=1\nexport B = two words  # and why\nC='$HOME # kept'\n"
        'D="line\\nnext \\"q\\" \\\\" # c\nE=\nF=a#b\nG=#nothing\n'
    )
    finds, variables = from_dotenv(path)
    assert finds.problems == []
    assert variables == {
        "A": "1",
        "B": "two words",
        "C": "$HOME # kept",
        "D": 'line\nnext "q" \\',
        "E": "",
        "F": "a#b",
        "G": "",
    }


def test_what_is_wrong_in_a_dotenv_is_told_by_line(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("LOG_LEVEL=info\nFOREIGN=1\nFOREIGN=2\nLOG_LEVEL=warn\nhunter2\nX='hunter2\nMQUEUE_LOGLEVEL=info\n")
    problems = [problem.replace(str(path), "f") for problem in from_dotenv(path)[0].problems]
    assert problems == [
        "f:4: LOG_LEVEL stands there twice, first in line 1",
        "f:5: is not NAME=value, or a quote is left open",
        "f:6: is not NAME=value, or a quote is left open",
        "f:7: MQUEUE_LOGLEVEL: unknown variable; did you mean MQUEUE_LOG_LEVEL?",
    ]


def test_the_dotenv_of_the_working_directory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(environ={}) == Config()
    Path(".env").write_text("LOG_LEVEL=error")
    assert load(environ={}).logging.level == "error"
    Path(".env").unlink()
    Path(".env").mkdir()
    with pytest.raises(BadConfig, match="cannot be read"):
        load(environ={})


# Variables of others


def test_variables_of_clients_and_of_kubernetes_are_left_alone() -> None:
    links = {
        "MQUEUE_PORT": "tcp://10.0.0.1:8080",
        "MQUEUE_SERVICE_HOST": "10.0.0.1",
        "MQUEUE_SERVICE_PORT": "8080",
        "MQUEUE_SERVICE_PORT_HTTP": "8080",
        "MQUEUE_PORT_8080_TCP_ADDR": "10.0.0.1",
        "MQUEUE_URL": "http://x",
        "MQUEUE_TOKEN": "x",
        "MQUEUE_TOKEN_FILE": "x",
        "MQUEUE_CONTEXT": "x",
        "MQUEUE_CA_FILE": "x",
        "MQUEUE_NAMESPACE": "x",
        "PATH": "/bin",
    }
    assert load(None, links, dotenv=None) == Config()
    with pytest.raises(BadConfig, match="MQUEUE_HTTP_PORT: unknown variable"):
        load(None, {"MQUEUE_HTTP_PORT": "8080"}, dotenv=None)


# Secrets


def test_secrets_come_from_files(tmp_path: Path, path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{STRONG}\n")
    for name in ("JWT_SECRET_FILE", "MQUEUE_JWT_SECRET_FILE"):
        assert load(None, {name: str(secret)}, dotenv=None).security.jwt.secret == Secret(STRONG)
    assert load(None, {}, {"security.jwt.secretFile": secret}, dotenv=None).security.jwt.secret == Secret(STRONG)
    config = read(path, f"security: {{jwt: {{secretFile: '{secret}'}}}}")
    assert config.security.jwt.secret == Secret(STRONG)
    assert load(path, {"JWT_SECRET": OTHER}, dotenv=None).security.jwt.secret == Secret(OTHER)


def test_a_secret_file_that_cannot_be_read(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_text("x" * (64 * KIB + 1))
    for name, sentence in ((f"{big}x", "No such file"), (str(big), "longer than"), (str(tmp_path), "cannot be read")):
        with pytest.raises(BadConfig, match=sentence):
            load(None, {"JWT_SECRET_FILE": name}, dotenv=None)


def test_what_cannot_be_read_is_not_also_called_missing() -> None:
    public = {"MQUEUE_HTTP": "0.0.0.0:80", "MQUEUE_TLS_SELF_SIGNED": "yes", "MQUEUE_AUTH": "jwt"}
    with pytest.raises(BadConfig) as caught:
        load(None, {**public, "JWT_SECRET_FILE": "nowhere"}, dotenv=None)
    assert caught.value.problems == ("JWT_SECRET_FILE: the file 'nowhere' cannot be read: No such file or directory",)


def test_a_secret_and_its_file_in_one_source_are_refused() -> None:
    with pytest.raises(BadConfig, match="JWT_SECRET and JWT_SECRET_FILE: give one of them"):
        load(None, {"JWT_SECRET": STRONG, "JWT_SECRET_FILE": "x"}, dotenv=None)


def test_secrets_are_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    config = load(None, {"JWT_SECRET": STRONG, "MQUEUE_JWT_PREVIOUS_SECRET": OTHER}, dotenv=None)
    with caplog.at_level(logging.INFO):
        logging.getLogger("mqueue").info("started with %s", config)
    shown = [repr(config), str(config), caplog.text, json.dumps(describe(config))]
    try:
        raise ValueError(config)
    except ValueError:
        shown.append(traceback.format_exc())
    with pytest.raises(TypeError):
        msgspec.json.encode(config)
    assert not [text for text in shown if STRONG in text or OTHER in text]
    assert describe(config)["security"]["jwt"]["secret"] == "********"
    assert describe(Config())["security"]["jwt"]["secret"] is None


def test_a_weak_secret_is_refused_unseen() -> None:
    for weak in ("secret", "changeme" * 8, "a" * 64, STRONG[:31]):
        with pytest.raises(BadConfig, match="JWT_SECRET is too weak") as caught:
            load(None, {"JWT_SECRET": weak}, dotenv=None)
        assert weak not in str(caught.value).replace("JWT_SECRET", "")
