"""The rules and dashboards of deploy/ ask for what servers really export, and promtool takes them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tools.dashboards import DASHBOARDS, PLACE, written

import mqueue
from mqueue.config import Cluster, Config, Data, Metrics, Redis, Secret, Telemetry
from mqueue.testing import PostgresServer, RedisServer
from mqueue.testing.server import RunningServer

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = PROMETHEUS / "rules"
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs promtool: make setup-system")

Exported = dict[str, set[str]]
"""The labels of every sample, by its name."""

EVERYWHERE = {"instance", "job"}
"""Labels that Prometheus adds."""
EMPTY = {"mqueue_map_conflicts": {"kind"}, "mqueue_forwards_total": {"result"}}
"""Of one node that is well there is no such sample; see `placing/collector.py`."""

_NAME = re.compile(r"\b((?:mqueue|process)[_:][a-z0-9_:]*|up)\b(?:\{([^}]*)\})?")
_MATCHED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_BY = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")


def rules(file: str) -> list[tuple[str, dict[str, Any]]]:
    """Each rule of a file, and the name of its group."""
    found = yaml.safe_load((RULES / file).read_text(encoding="utf-8"))["groups"]
    return [(group["name"], rule) for group in found for rule in group["rules"]]


RECORDED = {rule["record"]: rule["expr"] for _, rule in rules("recording.yml")}
ALERTS = {rule["alert"]: (group, rule) for group, rule in rules("alerts.yml")}
PANELS = [
    pytest.param(target["expr"], target["legendFormat"], id=f"{path.stem}: {panel['title']} {target['refId']}")
    for path in sorted(PLACE.glob("*.json"))
    for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]
    for target in panel.get("targets", ())
]


def samples(url: str) -> Exported:
    with urlopen(f"{url}/metrics", timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    found: Exported = {}
    for family in families:
        found.setdefault(family.name, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def used(url: str) -> None:
    """A little of everything, so that every number has something to tell of."""
    with mqueue.Client(url) as q:
        q.publish("orders", "a")
        q.receive("orders")[0].nack()
        q.join("orders", group="assigned")


@pytest.fixture(scope="module")
def exported(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Exported]]:
    """What a server by itself exports, and what a node of a cluster does."""
    more = {"metrics": Metrics(interval_ms=0), "telemetry": Telemetry("http://127.0.0.1:1/v1/traces")}
    kept = Config(data=Data(dir=str(tmp_path_factory.mktemp("deploy") / "data")), **more)
    with RedisServer() as redis, RunningServer(kept, memory=False) as alone:
        store = Redis((f"127.0.0.1:{redis.port}",), password=Secret(redis.password))
        cluster = Cluster((Secret(postgres_server.create("deploy")),), redis=store)
        with RunningServer(Config(cluster=cluster, **more)) as node:
            for url in (alone.url, node.url):
                used(url)
            yield {"alone": samples(alone.url), "node": samples(node.url) | EMPTY}


def wrong(expression: str, exported: Exported) -> list[str]:
    """What an expression asks for that is not there."""
    problems = []
    for name, matched in _NAME.findall(expression):
        labels = _labels(name, exported)
        if labels is None:
            problems.append(f"{name} is not exported")
        else:
            problems += [f"{name} has no label {one}" for one in _MATCHED.findall(matched) if one not in labels]
    given = _given(expression, exported)
    for listed in _BY.findall(expression):
        problems += [f"nothing here has a label {one}" for one in _words(listed) if one not in given | {"le"}]
    return problems


def _labels(name: str, exported: Exported) -> set[str] | None:
    if name in RECORDED:
        return shown(RECORDED[name], exported)
    if name == "up":
        return EVERYWHERE
    return exported[name] | EVERYWHERE if name in exported else None


def _given(expression: str, exported: Exported) -> set[str]:
    return set[str]().union(*(_labels(name, exported) or set() for name, _ in _NAME.findall(expression)))


def shown(expression: str, exported: Exported) -> set[str]:
    """The labels that a result has."""
    listed = _BY.findall(expression)
    if listed and " on (" not in expression:
        return {one for words in listed for one in _words(words)} - {"le"}
    return set() if re.match(r"(sum|max|min|count|histogram_quantile)\(", expression) else _given(expression, exported)


def _words(listed: str) -> list[str]:
    return [one.strip() for one in listed.split(",") if one.strip()]


def both(exported: dict[str, Exported]) -> Exported:
    found: Exported = {}
    for told in exported.values():
        for name, labels in told.items():
            found.setdefault(name, set()).update(labels)
    return found


# What they ask for


def test_a_wrong_question_is_noticed(exported: dict[str, Exported]) -> None:
    there = both(exported)
    assert wrong("rate(mqueue_topic_publisht_total[5m])", there) == ["mqueue_topic_publisht_total is not exported"]
    assert wrong('mqueue_ready{shard="a"}', there) == ["mqueue_ready has no label shard"]
    assert wrong("sum by (topik) (mqueue_topic_depth)", there) == ["nothing here has a label topik"]
    assert wrong("mqueue:topic_depth:average", there) == ["mqueue:topic_depth:average is not exported"]
    assert wrong('sum by (le) (rate(mqueue_publish_seconds_bucket{job="a"}[5m]))', there) == []


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_rules_ask_for_what_is_there(exported: dict[str, Exported], name: str) -> None:
    assert wrong(RECORDED[name], both(exported)) == []


@pytest.mark.parametrize("name", ALERTS)
def test_alerts_ask_for_what_is_there(exported: dict[str, Exported], name: str) -> None:
    """Those of a disk by a server that has one, those of a cluster by a node, all others by both."""
    group, rule = ALERTS[name]
    for who in {"mqueue": ("alone", "node"), "mqueue-disk": ("alone",), "mqueue-cluster": ("node",)}[group]:
        assert wrong(rule["expr"], exported[who]) == [], who
        labels = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
        assert set(labels) <= shown(rule["expr"], exported[who]), who


@pytest.mark.parametrize(("expression", "legend"), PANELS)
def test_panels_ask_for_what_is_there(exported: dict[str, Exported], expression: str, legend: str) -> None:
    there = both(exported)
    assert wrong(expression, there) == []
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= shown(expression, there) | _given(expression, there)


# What stands where


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda made: made.uid)
def test_dashboards_are_current(dashboard) -> None:
    path = PLACE / f"{dashboard.uid}.json"
    assert path.read_text(encoding="utf-8") == written(dashboard), "python -m tools.dashboards makes them anew"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda made: made.uid)
def test_panels_stand_beside_each_other(dashboard) -> None:
    document = json.loads(written(dashboard))
    ids = [panel["id"] for panel in document["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        where = panel["gridPos"]
        fields = {
            (x, y)
            for x in range(where["x"], where["x"] + where["w"])
            for y in range(where["y"], where["y"] + where["h"])
        }
        assert where["x"] + where["w"] <= 24
        assert not fields & taken
        taken |= fields


def test_grafana_is_told_where_things_are() -> None:
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    scraped = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped
    [provider] = yaml.safe_load((provisioning / "dashboards" / "mqueue.yml").read_text())["providers"]
    assert provider["type"] == "file"


# The runbook


def _anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


PARTS = {_anchor(part.partition("\n")[0]): part for part in re.split(r"^## ", RUNBOOK, flags=re.MULTILINE)[1:]}


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_a_part_in_the_runbook_that_names_it(name: str) -> None:
    page, _, anchor = ALERTS[name][1]["annotations"]["runbook"].partition("#")
    assert page == "docs/runbook.md"
    assert name in PARTS[anchor].partition("**Means**")[0]


def test_the_runbook_names_no_other_alerts() -> None:
    assert set(re.findall(r"\bMqueue[A-Z]\w+", RUNBOOK)) == set(ALERTS)


def test_every_alarm_of_a_metric_has_an_alert() -> None:
    told = {rule["annotations"]["runbook"].partition("#")[2] for _, rule in ALERTS.values()}
    alarms = {anchor for anchor, part in PARTS.items() if "mqueue_" in part.partition("**Means**")[0]}
    assert alarms - told == {"a-node-is-restarted-or-a-server-moved"}  # that is no alarm


def test_the_page_of_operations_lists_all_alerts() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("### Alerts\n")[2]
    rows = dict(re.findall(r"^\| `(Mqueue\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert rows == {name: rule["labels"]["severity"] for name, (_, rule) in ALERTS.items()}


# The real thing


def promtool(*words: object, cwd: Path = PROMETHEUS) -> str:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.system
@needs_promtool
def test_promtool_takes_the_rules_and_the_configuration() -> None:
    promtool("check", "config", "prometheus.yml")
    promtool("check", "rules", *sorted(RULES.glob("*.yml")))


@pytest.mark.system
@needs_promtool
def test_every_alert_goes_off_and_stays_quiet_as_written() -> None:
    files = sorted((PROMETHEUS / "tests").glob("*.yml"))
    promtool("test", "rules", *files)
    cases = [case for file in files for case in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]]
    assert {case["name"] for case in cases} == {
        f"{name} {how}" for name in ALERTS for how in ("goes off", "stays quiet")
    }


@pytest.mark.system
@needs_promtool
def test_promtool_can_read_every_panel(tmp_path: Path) -> None:
    expressions = [panel.values[0] for panel in PANELS]
    plain = [re.sub(r"\$__rate_interval", "5m", expression) for expression in expressions]
    read = [{"record": f"panel:number{place}", "expr": one} for place, one in enumerate(plain)]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": read}]}))
    promtool("check", "rules", tmp_path / "panels.yml")
