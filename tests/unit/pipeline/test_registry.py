"""Pipelines are found by name, and their parameters are read or refused."""

from datetime import timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest

from respool.errors import CheckpointError, PipelineError, RespoolError, SettingsError
from respool.pipeline.parameters import Parameter, parameters_of
from respool.pipeline.registry import BUILT_IN, find_pipeline, parameters, section_values
from respool.running.claim import claim
from respool.settings import Settings


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_every_pipeline_can_be_made_and_describes_itself(name: str) -> None:
    facts = find_pipeline(name).describe()
    assert facts["pipeline"] == name
    assert all(facts.values())
    assert {"topic", "timezone"} <= {parameter.name for parameter in parameters(name)}


def test_a_parameter_changes_the_pipeline() -> None:
    changed = find_pipeline(
        "visit-counts", {"topic": "clicks", "watermark": "1h", "window": "15m", "timezone": "Europe/Paris"}
    )
    assert (changed.topic, changed.watermark, changed.timezone) == ("clicks", "1h", "Europe/Paris")
    assert "15m" in changed.summary


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"windw": "15m"}, "no parameter 'windw'. Did you mean 'window'"),
        ({"window": "soon"}, "'soon' is not a duration"),
        ({"window": "0s"}, "empty duration"),
        ({"watermark": "later"}, "'later' is not a duration"),
        ({"timezone": "Europe/Pari"}, "Did you mean 'Europe/Paris'"),
        ({"topic": ""}, "expected text"),
        ({"topic": 3}, "expected text"),
    ],
)
def test_a_parameter_that_cannot_be_is_reported(values: dict[str, object], message: str) -> None:
    with pytest.raises(RespoolError, match=message):
        find_pipeline("visit-counts", values)


def test_an_unknown_rule_for_sessions_is_reported() -> None:
    with pytest.raises(PipelineError, match="expected gap or timer"):
        find_pipeline("sessions", {"rule": "gaps"})


def test_a_checkpoint_keeps_what_its_state_is_laid_out_by(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    held = claim(checkpoint, find_pipeline("sessions", {"buckets": "4"}), Settings(home=tmp_path))
    assert held is not None
    held.close()
    with pytest.raises(
        CheckpointError, match=r"created with buckets=4, which cannot change; found buckets=16.*--set buckets=4"
    ):
        claim(checkpoint, find_pipeline("sessions"), Settings(home=tmp_path))
    again = claim(checkpoint, find_pipeline("sessions", {"buckets": "4", "gap": "5 minutes"}), Settings(home=tmp_path))
    assert again is not None
    again.close()


class Colour(Enum):
    """Something to choose from."""

    RED = "r"
    BLUE = "b"


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (str, "1.5", "1.5"),
        (int, "3", 3),
        (int, 3, 3),
        (float, "0.5", 0.5),
        (float, "3", 3.0),
        (float, 0.5, 0.5),
        (float | None, "1e-3", 0.001),
        (Optional[float], "2", 2.0),  # noqa: UP045  (as older code writes it)
        (Annotated[float, "a share"], "2", 2.0),
        (bool, "TRUE", True),
        (bool, False, False),
        (bool | None, "false", False),
        (Decimal, "0.10", Decimal("0.10")),
        (Path, "/a/b", Path("/a/b")),
        (timedelta, "15 minutes", timedelta(minutes=15)),
        (Literal["gap", "timer"], "timer", "timer"),
        (Literal[1, 2], "2", 2),
        (Colour, "b", Colour.BLUE),
        (Colour, "RED", Colour.RED),
        (int | str, "7", 7),
        (int | str, "seven", "seven"),
        (str | int, "7", 7),
        (Any, "x", "x"),
    ],
)
def test_a_parameter_is_read_by_its_annotation(kind: object, given: object, value: object) -> None:
    read = Parameter("p", "x", None, kind).read(given)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (int, "1.5", "a whole number"),
        (int, True, "a whole number"),
        (float, "much", "a number"),
        (float, "nan", "a number"),
        (float, "", "a number"),
        (float, True, "a number"),
        (Decimal, "inf", "a number"),
        (bool, "yes", "true or false"),
        (timedelta, "soon", "a duration"),
        (Literal["gap", "timer"], "gaps", "one of gap, timer"),
        (Colour, "green", "one of r, b"),
        (int | None, "none", "a whole number"),
    ],
)
def test_a_parameter_of_another_type_is_refused(kind: object, given: object, expected: str) -> None:
    with pytest.raises(PipelineError, match=f"The parameter x of p is .*; expected {expected}"):
        Parameter("p", "x", None, kind).read(given)


def test_an_annotation_that_text_cannot_be_turned_into_is_refused() -> None:
    def make(*, ok: int = 1, columns: list[str] = ["a"]) -> None: ...  # noqa: B006

    with pytest.raises(PipelineError, match=r"The parameter columns of p is annotated with list\[str\].*Annotate it"):
        parameters_of(make, "p")


def test_without_an_annotation_the_default_says_the_type() -> None:
    def make(*args: object, share=0.5, count=3, name=None, on=True, **rest: object) -> None: ...  # type: ignore[no-untyped-def]

    kinds = {parameter.name: parameter.kind for parameter in parameters_of(make, "p")}
    assert kinds == {"share": float, "count": int, "name": str, "on": bool}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's module in the working folder."""
    (tmp_path / "shop_of_a_test.py").write_text(
        "from respool import ConsoleSink, JsonDecoder, Pipeline\n"
        "def make(*, name: str = 'orders', share: float = 0.1, topic: str = 'orders') -> Pipeline:\n"
        "    assert isinstance(share, float)\n"
        "    return Pipeline(name, topic, lambda rows: rows, ConsoleSink(), summary=str(share))\n"
        "def needy(*, topic: str) -> Pipeline:\n"
        "    return make(topic=topic)\n"
        "fixed = make(name='fixed')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_parameter_without_a_default_must_be_set(shop: Path) -> None:
    with pytest.raises(PipelineError, match=r"needs a value for its parameter 'topic'.*--set topic=VALUE"):
        find_pipeline("shop_of_a_test:needy")
    assert find_pipeline("shop_of_a_test:needy", {"topic": "t"}).topic == "t"


def test_a_section_of_settings_is_found_by_either_name_of_a_pipeline(shop: Path) -> None:
    name = "shop_of_a_test:make"
    assert section_values([name], {"orders": {"share": 0.2}})[name] == {"share": 0.2}
    both: dict[str, dict[str, object]] = {"orders": {"share": 0.2, "topic": "a"}, name: {"share": 0.3}}
    both["sessions"] = {"gap": "1m"}
    values = section_values([name, "sessions"], both)
    assert values == {name: {"share": 0.3, "topic": "a"}, "sessions": {"gap": "1m"}}
    assert find_pipeline(name, values[name]).summary == "0.3"
    with pytest.raises(PipelineError, match="without parameters; found share"):
        find_pipeline(
            "shop_of_a_test:fixed",
            section_values(["shop_of_a_test:fixed"], {"fixed": {"share": 1}})["shop_of_a_test:fixed"],
        )


def test_a_section_of_no_pipeline_is_refused(shop: Path) -> None:
    with pytest.raises(SettingsError, match=r"\[pipelines\.visit-count\].*Did you mean 'visit-counts'\?"):
        section_values(["sessions"], {"visit-count": {}})
    with pytest.raises(SettingsError, match=r'\[pipelines\."my_app\.pipelines:payments"\]'):
        section_values(["shop_of_a_test:make"], {"payments": {"share": 1}})
    assert section_values(["sessions"], {"shop_of_a_test:make": {}, "visit-counts": {}}) == {"sessions": {}}
