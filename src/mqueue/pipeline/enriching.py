"""Leads as messages in, enriched leads as messages out: cleaned, joined with companies, scored. Columns of Spark only.

What cannot be used keeps its bytes and goes to a dead-letter topic, with the reasons in headers that every dead letter
has, so that it can be listed, grouped and redriven like any other. Knows no server and no stream.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from mqueue.model.limits import KIB
from mqueue.pipeline.headers import added, story
from mqueue.pipeline.leads import FIELDS, FREE_MAIL
from mqueue.pipeline.scoring import PRIORITIES, RULES, SCORE_MAX, URGENT, USUAL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COMPANY = "company_id bigint, name string, domain string, industry string, size bigint, country string"
_LEAD = ", ".join(f"{name} {'bigint' if name == 'budget' else 'string'}" for name in FIELDS)
_ADDRESS = r"^[a-z0-9._%+-]+@[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]{2,}$"
_LEGAL_FORM = r"\b(inc|gmbh|ltd|ag|llc|s a|bv)$"
_FROM_COMPANY = ("company_id", "industry", "size")
LEAD_BYTES_MAX = 64 * KIB
"""What is longer is no lead. Enriched, it must still be a message: one that cannot be published would hold up all."""


def transform(messages: DataFrame, companies: DataFrame, target: str, dead: str) -> DataFrame:
    """Messages in, messages out, ready for the sink: `topic` says where each of them goes."""
    from pyspark.sql import functions as sf

    scored = _scored(_joined(_tidied(_parsed(messages)), companies))
    good = sf.size("faults") == 0
    return scored.select(
        sf.col("key"),
        sf.when(good, _payload()).otherwise(sf.col("value")).alias("value"),
        sf.when(good, added(_news())).otherwise(added(_story())).alias("headers"),
        sf.when(good, sf.lit(target)).otherwise(sf.lit(dead)).alias("topic"),
        sf.when(good, _priority()).otherwise(sf.col("priority")).alias("priority"),
    )


def _parsed(messages: DataFrame) -> DataFrame:
    """`lead`: the fields, null where there are none; `extra`: names of fields that nobody knows."""
    from pyspark.sql import functions as sf

    text = sf.when(sf.is_valid_utf8(sf.col("value").cast("string")), sf.col("value").cast("string"))
    listed = sf.concat(sf.lit("["), sf.col("text"), sf.lit("]"))  # alone, what stands behind an object is passed over
    alone = (sf.json_array_length(listed) == 1) & sf.rtrim("text").endswith("}")
    whole = sf.when(alone & sf.try_parse_json("text").isNotNull(), sf.json_object_keys("text"))
    known = sf.array(*map(sf.lit, FIELDS))
    return (
        messages.withColumn("text", text)
        .withColumn("names", whole)
        .withColumn("lead", sf.when(sf.col("names").isNotNull(), sf.from_json("text", _LEAD)))
        .withColumn("extra", sf.array_except("names", known))
    )


def _tidied(parsed: DataFrame) -> DataFrame:
    """Each field as it should have been typed; `faults`: why it cannot be used, empty if it can."""
    from pyspark.sql import functions as sf

    fields = {name: sf.col(f"lead.{name}") for name in FIELDS}
    fields["name"] = sf.initcap(_squeezed(fields["name"]))
    fields["email"] = sf.lower(sf.trim(fields["email"]))
    fields["company"] = _squeezed(fields["company"])
    fields["country"] = sf.upper(sf.trim(fields["country"]))
    is_lead = sf.col("names").isNotNull()
    address = sf.coalesce(sf.col("email").rlike(_ADDRESS), sf.lit(False))
    budget = sf.get_json_object("text", "$.budget")
    faults = (
        sf.when(sf.octet_length("value") > LEAD_BYTES_MAX, "too_large"),
        sf.when(~is_lead, "invalid_json"),
        sf.when(sf.size("extra") > 0, sf.concat(sf.lit("unknown_fields: "), sf.array_join("extra", ", "))),
        sf.when(is_lead & ~address, "bad_email"),
        sf.when(is_lead & (sf.coalesce("name", sf.lit("")) == ""), "no_name"),
        sf.when(budget.isNotNull() & sf.col("budget").isNull(), "bad_budget"),
    )
    return parsed.withColumns(fields).withColumn("faults", sf.array_compact(sf.array(*faults)))


def _joined(leads: DataFrame, companies: DataFrame) -> DataFrame:
    """With the company whose domain the address has, else with the one of that name."""
    from pyspark.sql import functions as sf

    domain = sf.substring_index("email", "@", -1)
    leads = leads.withColumn("by_domain", sf.when(~domain.isin(*FREE_MAIL), domain))
    leads = leads.withColumn("by_name", _plain_name(sf.col("company")))
    found = sf.coalesce("of_domain", "of_name")
    row = sf.struct(*_FROM_COMPANY)
    domains = _first(companies, sf.lower("domain"), row, "by_domain", "of_domain")
    names = _first(companies, _plain_name(sf.col("name")), row, "by_name", "of_name")
    joined = leads.join(sf.broadcast(domains), "by_domain", "left").join(sf.broadcast(names), "by_name", "left")
    return joined.withColumns({name: found[name] for name in _FROM_COMPANY})


def _first(companies: DataFrame, key: Column, row: Column, key_name: str, name: str) -> DataFrame:
    """One company for each key, always the same: a lead must not become two."""
    from pyspark.sql import functions as sf

    keyed = companies.select(key.alias(key_name), row.alias(name)).where(sf.col(key_name) != "")
    return keyed.groupBy(key_name).agg(sf.min(name).alias(name))


def _scored(joined: DataFrame) -> DataFrame:
    """`score`: 0 to 100; `why`: the rules that it comes from."""
    from pyspark.sql import functions as sf

    held = [(rule, sf.coalesce(sf.expr(rule.condition), sf.lit(False))) for rule in RULES]
    score = reduce(add, (sf.when(holds, rule.points).otherwise(0) for rule, holds in held))
    why = sf.array_compact(sf.array(*(sf.when(holds, f"{rule.reason} +{rule.points}") for rule, holds in held)))
    return joined.withColumns({"score": sf.least(score, sf.lit(SCORE_MAX)), "why": why})


def _payload() -> Column:
    from pyspark.sql import functions as sf

    columns = [*FIELDS, *_FROM_COMPANY, "score", "why"]
    return sf.to_json(sf.struct(*columns)).cast("binary")


def _priority() -> Column:
    from pyspark.sql import functions as sf

    usual = sf.when(sf.col("score") >= USUAL, PRIORITIES["usual"]).otherwise(PRIORITIES["later"])
    return sf.when(sf.col("score") >= URGENT, PRIORITIES["urgent"]).otherwise(usual).cast("int")


def _news() -> dict[str, Column]:
    from pyspark.sql import functions as sf

    return {"content-type": sf.lit("application/json"), "x-score": sf.col("score").cast("string")}


def _story() -> dict[str, Column]:
    """Why it is dead. A redrive publishes it anew, and it is enriched again."""
    from pyspark.sql import functions as sf

    origin = {name: sf.col(name) for name in ("topic", "partition", "offset", "id")}
    return story(origin, sf.array_join("faults", "; "), sf.col("timestamp"), "enrich")


def _squeezed(text: Column) -> Column:
    from pyspark.sql import functions as sf

    return sf.trim(sf.regexp_replace(text, r"\s+", " "))


def _plain_name(name: Column) -> Column:
    """Without signs, capitals and the legal form: as a company is called by those who know it."""
    from pyspark.sql import functions as sf

    letters = sf.trim(sf.regexp_replace(sf.lower(name), r"[^\p{L}\p{N}]+", " "))
    return sf.trim(sf.regexp_replace(letters, _LEGAL_FORM, ""))
