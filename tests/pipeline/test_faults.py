"""One seed of the faults that are cheap to make; all of them, and more seeds: `make spark-faults`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pipeline.faults import ARCHIVE, DRIVER, FAIL, FAULTS, SERVER, STREAM, Campaign, Fault

SEED = 0
CHEAP = {
    (STREAM, FAIL, "staged"),
    (STREAM, SERVER, "stage"),
    (STREAM, DRIVER, "published"),
    (ARCHIVE, DRIVER, "appended"),
    (ARCHIVE, SERVER, "file"),
    (ARCHIVE, "overtake", "append"),
}
CHOSEN = [fault for fault in FAULTS if (fault.work, fault.act, fault.point) in CHEAP]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with Campaign(tmp_path_factory.mktemp("faults")) as campaign:
        yield campaign


def test_the_chosen_faults_are_there() -> None:
    assert len(CHOSEN) == len(CHEAP)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", CHOSEN, ids=lambda fault: fault.name)
def test_each_message_is_there_once(campaign: Campaign, fault: Fault) -> None:
    outcome = campaign.run(fault, SEED)
    assert not outcome.wrong, str(outcome)
