"""The report of an audit, of results that others may have published."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from respool.archive.table import Size
from respool.reprocessing.audit_report import AuditDifference, AuditReport
from respool.reprocessing.plan import ReprocessPlan, ReprocessRequest
from respool.times import Span
from respool.visits.counts import visit_counts

SEVEN = datetime(2025, 9, 4, 7, tzinfo=timezone.utc)
HOUR = Span(SEVEN, SEVEN + timedelta(hours=1))


def report(published: str) -> AuditReport:
    request = ReprocessRequest(visit_counts(), HOUR)
    plan = ReprocessPlan(request, HOUR, (HOUR,), "/archive", 3, Size(1, 10), Size(9, 90), None, True)
    facts: dict[str, Any] = {"start": SEVEN, "end": SEVEN + timedelta(minutes=10), "key": "k"}
    extra = AuditDifference("extra", **facts, published=published, archived=None, late=None, records=())
    return AuditReport(plan, differences=(extra,))


def test_the_fields_of_a_published_result_are_shown() -> None:
    assert "count=3" in report('{"count": 3}').text()


@pytest.mark.parametrize(
    "published", ["{'count': 3}", '{"count": 3} and more', "[" * 50_000, '{"count": NaN}', "", "3", "\ufffd"]
)
def test_a_published_result_that_is_no_json_is_shown_as_it_is(published: str) -> None:
    text = report(published).text()
    assert f"value={published[:20]}" in text
