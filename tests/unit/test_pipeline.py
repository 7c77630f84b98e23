"""Pipelines are found by name, and their parameters are read or refused."""

from pathlib import Path

import pytest

from respool.checkpoint.claim import claim
from respool.errors import CheckpointError, PipelineError, RespoolError
from respool.pipeline import BUILT_IN, find, parameters


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_every_pipeline_can_be_made_and_tells_what_it_does(name: str) -> None:
    facts = find(name).describe()
    assert facts["pipeline"] == name
    assert all(facts.values())
    assert {"topic", "timezone"} <= {one.name for one in parameters(name)}


def test_a_parameter_changes_the_pipeline() -> None:
    changed = find("visit-counts", {"topic": "clicks", "watermark": "1h", "window": "15m", "timezone": "Europe/Paris"})
    assert (changed.topic, changed.watermark, changed.timezone) == ("clicks", "1h", "Europe/Paris")
    assert "15m" in changed.summary


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"windw": "15m"}, "no parameter 'windw'. Did you mean 'window'"),
        ({"window": "soon"}, "'soon' is not a duration"),
        ({"window": "0s"}, "no time at all"),
        ({"watermark": "later"}, "'later' is not a duration"),
        ({"timezone": "Europe/Pari"}, "Did you mean 'Europe/Paris'"),
        ({"topic": ""}, "expected text"),
        ({"topic": 3}, "expected text"),
    ],
)
def test_a_parameter_that_cannot_be_is_told(values: dict[str, object], told: str) -> None:
    with pytest.raises(RespoolError, match=told):
        find("visit-counts", values)


def test_an_unknown_rule_for_sessions_is_told() -> None:
    with pytest.raises(PipelineError, match="expected gap or timer"):
        find("sessions", {"rule": "gaps"})


def test_a_checkpoint_keeps_what_its_state_is_laid_out_by(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    held = claim(checkpoint, find("sessions", {"buckets": "4"}), tmp_path)
    assert held is not None
    held.close()
    with pytest.raises(
        CheckpointError, match=r"made with buckets=4, which it keeps; found buckets=16.*--set buckets=4"
    ):
        claim(checkpoint, find("sessions"), tmp_path)
    again = claim(checkpoint, find("sessions", {"buckets": "4", "gap": "5 minutes"}), tmp_path)
    assert again is not None
    again.close()
