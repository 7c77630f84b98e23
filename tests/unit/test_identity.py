"""What is written down to be compared later: one canonical form, and what earlier versions wrote in its place."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from respool.archive.repair import hold_archiving
from respool.archive.sink import ArchiveSink, archive_topic
from respool.archive.table import DecoderIdentity
from respool.checkpoint import ownership
from respool.decoders.json import JsonDecoder
from respool.errors import CheckpointError, PipelineError
from respool.identity import FROM_TEXT, Identity, canonical_json, parse_identity, results_from_text
from respool.kafka.offsets import OffsetRange, TopicPartition
from respool.pipeline import registry, results
from respool.pipeline.definition import Pipeline
from respool.pipeline.results import ArrivalDependent, Results, Sessions, Windows
from respool.reprocessing.live import read_live
from respool.running import claim
from respool.settings import Settings
from respool.sinks import protocol
from respool.sinks.console import ConsoleSink, FunctionSink
from respool.sinks.delta import DeltaSink
from respool.sinks.kafka import KafkaSink, RejectedSink
from respool.sinks.protocol import Sink
from respool.storage.open import open_reader
from respool.times import duration_text, parse_duration
from respool.untrusted import Malformed

DECODER = JsonDecoder("visit_id STRING NOT NULL, event_time TIMESTAMP", "event_time")


class TestCanonicalForm:
    def test_keys_are_sorted_and_times_and_durations_have_one_spelling(self) -> None:
        paris = datetime(2025, 9, 4, 9, tzinfo=timezone(timedelta(hours=2)))
        value = {"b": paris, "a": (timedelta(minutes=10), {"d": None, "c": True})}
        assert canonical_json(value) == '{"a":["10 minutes",{"c":true,"d":null}],"b":"2025-09-04T07:00:00+00:00"}'

    def test_an_identity_is_read_as_it_was_written(self) -> None:
        identity = Identity("kafka", {"topic": "é", "offsets": {"1": 2}})
        assert parse_identity(identity.text()) == identity
        assert hash(parse_identity(identity.text())) == hash(identity)

    @pytest.mark.parametrize(
        "text",
        [
            *("", "[]", "{}", '{"kind":"a","version":1}', '{"kind":"a","fields":[],"version":1}'),
            *('{"kind":1,"fields":{},"version":1}', '{"kind":"a","fields":{},"version":-1}'),
            '{"kind":"a","fields":{},"version":1,"more":1}',
        ],
    )
    def test_what_is_no_identity_is_refused(self, text: str) -> None:
        with pytest.raises(Malformed):
            parse_identity(text)

    def test_an_identity_of_a_newer_version_is_refused(self) -> None:
        with pytest.raises(Malformed, match="version 2; this respool supports 1: use a newer respool"):
            parse_identity('{"kind":"a","fields":{},"version":2}')

    @pytest.mark.parametrize(
        ("texts", "canonical"),
        [
            (("10m", "10 minutes", "600s", "600000 ms", "10 min"), "10 minutes"),
            (("1h", "60 minutes"), "1 hour"),
            (("90m", "1.5h"), "90 minutes"),
            (("24h", "1d", "1 day"), "1 day"),
            (("1500ms", "1.5s"), "1500 milliseconds"),
            (("0.25ms",), "0.25 milliseconds"),
            (("0s", "0d"), "0 seconds"),
        ],
    )
    def test_a_duration_has_one_spelling(self, texts: tuple[str, ...], canonical: str) -> None:
        assert {duration_text(parse_duration(text)) for text in texts} == {canonical}
        assert parse_duration(canonical) == parse_duration(texts[0])


class TestResults:
    def test_windows_and_sessions_are_the_same_however_they_are_spelled(self) -> None:
        assert Windows("10m").identity() == Windows("10 minutes", "600s", "20m").identity()
        assert Sessions("2h", ("a",)).identity() == Sessions("120 minutes", ("a",)).identity()

    @pytest.mark.parametrize("other", [Windows("5m"), Windows("10m", "5m"), Windows("10m", offset="1m")])
    def test_other_windows_are_others(self, other: Windows) -> None:
        assert Windows("10m").identity() != other.identity()

    @pytest.mark.parametrize(
        "kept", [Windows("10m"), Windows("1 hour", "20m"), Sessions("2h", ("a",)), ArrivalDependent("of the order")]
    )
    def test_the_sentence_of_an_earlier_version_stands_for_them(self, kept: Results) -> None:
        recorded = results_from_text(kept.describe())
        assert recorded is not None
        assert recorded.version == FROM_TEXT
        assert recorded.is_same(kept.identity())
        assert results.text_of(recorded) == results.text_of(kept.identity())
        assert not recorded.is_same(Windows("7m").identity())

    def test_other_sentences_have_no_known_identity(self) -> None:
        assert results_from_text("") is None
        for text in ("windows of soon", "sessions with a gap of x", "anything"):
            recorded = results_from_text(text)
            assert recorded is not None
            assert not recorded.is_same(Windows("10m").identity())


def nothing(rows: object, batch: int) -> None:
    """A function to write to."""


class TestSinks:
    @pytest.mark.parametrize(
        "sink",
        [
            KafkaSink("out", key=("id",)),
            RejectedSink("out"),
            ConsoleSink(),
            FunctionSink(nothing, "the shop's database"),
            DeltaSink("out/counts", key=("id",)),
            DeltaSink("s3://bucket/out/", key=("id",)),
            archive_topic("a", "visits", DECODER, table="visits_table", timezone="UTC").sink,
        ],
    )
    def test_the_sentence_of_an_earlier_version_stands_for_a_sink(self, sink: Sink) -> None:
        for replay_note in (earlier_note(sink), ""):
            recorded = protocol.identity_from_text(sink.describe(), replay_note)
            assert recorded is not None
            assert recorded.version == FROM_TEXT
            assert recorded.is_same(protocol.identity_of(sink))
            assert not recorded.is_same(protocol.kafka_identity("elsewhere"))

    def test_a_table_of_results_is_not_an_archive(self) -> None:
        archive = archive_topic("a", "visits", DECODER, table="same", timezone="UTC").sink
        table = DeltaSink("same", key=("id",))
        assert archive.describe() == table.describe()
        assert protocol.identity_of(archive) != table.identity()
        recorded = protocol.identity_from_text(table.describe(), table.replay_note())
        assert recorded is not None
        assert not recorded.is_same(protocol.identity_of(archive))

    def test_a_table_is_the_same_however_its_path_is_spelled(self) -> None:
        assert DeltaSink("a//b/", ("id",)).identity() == DeltaSink("a/./b", ("id",)).identity()
        assert DeltaSink("s3://a/b/", ("id",)).identity() == DeltaSink("s3://a/b", ("id",)).identity()


class TestDecoders:
    @pytest.mark.parametrize(
        "schema",
        [
            "visit_id string not null,event_time timestamp",
            "`visit_id`: STRING NOT NULL, -- whose\n event_time TIMESTAMP_LTZ",
            "struct<visit_id: string not null, event_time: timestamp>",
        ],
    )
    def test_a_schema_is_the_same_however_it_is_spelled(self, schema: str) -> None:
        if not schema.startswith("struct"):
            assert replace(DECODER, schema=schema).identity() == DECODER.identity()
        assert replace(DECODER, schema=schema).identity() != replace(DECODER, schema="visit_id STRING").identity()

    @pytest.mark.parametrize(
        "schema",
        [
            "visit_id STRING, event_time TIMESTAMP",
            "visit_ID STRING NOT NULL, event_time TIMESTAMP",
            "visit_id STRING NOT NULL, event_time TIMESTAMP_NTZ",
            "event_time TIMESTAMP, visit_id STRING NOT NULL",
        ],
    )
    def test_another_schema_is_another(self, schema: str) -> None:
        assert replace(DECODER, schema=schema).identity() != DECODER.identity()

    def test_an_archive_recognizes_its_decoder_in_another_spelling(self) -> None:
        kept = DecoderIdentity.of(DECODER, "UTC")
        assert kept.is_decoded_as(DecoderIdentity.of(replace(DECODER, schema=DECODER.schema.lower()), "UTC"))
        assert not kept.is_decoded_as(DecoderIdentity.of(replace(DECODER, schema="event_time TIMESTAMP"), "UTC"))
        earlier = DecoderIdentity("event_time", "UTC", DECODER.schema.lower())  # of a table of an earlier version
        assert earlier.is_decoded_as(kept)
        assert not earlier.is_decoded_as(DecoderIdentity.of(replace(DECODER, tombstones="drop"), "UTC"))
        assert earlier.read_by() == replace(DECODER, schema=DECODER.schema.lower())
        several = replace(kept, schema="several")
        assert several.has_several_decoders
        assert not several.is_decoded_as(several)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / ".respool")


def earlier_note(sink: Sink) -> str:
    """What an earlier version of respool wrote of a sink and replayed batches."""
    if isinstance(sink, ArchiveSink):
        return "Records that the archive has already are left out."
    return sink.replay_note()


def ran(settings: Settings, wanted: Pipeline, *, as_earlier: bool = False) -> Path:
    """Leave the run.json of a pipeline; `as_earlier` versions of respool wrote it."""
    where = Path(settings.checkpoint_store) / wanted.name
    lock = claim.claim(str(where), wanted, settings)
    assert lock is not None
    lock.close()
    if as_earlier:
        file = where / ownership.RUN
        kept = json.loads(file.read_text())
        assert kept.pop("sink_identity")
        kept.pop("results_identity")
        kept["on_replay"] = earlier_note(wanted.sink)
        file.write_text(json.dumps(kept))
    return where


@pytest.mark.parametrize("as_earlier", [False, True])
class TestCheckpoints:
    """What a checkpoint says of the pipeline that ran on it, by this and by an earlier version of respool."""

    def test_a_run_is_read(self, as_earlier: bool, settings: Settings) -> None:
        counts = registry.find_pipeline("visit-counts")
        run = ownership.read_run_record(open_reader(str(ran(settings, counts, as_earlier=as_earlier))))
        assert run is not None
        assert run.sink_identity is not None
        assert run.results_identity is not None
        assert counts.results is not None
        assert run.sink_identity.is_same(protocol.identity_of(counts.sink))
        assert run.results_identity.is_same(counts.results.identity())

    @pytest.mark.parametrize("window", ["10m", "10 minutes", "600 s"])
    def test_a_live_query_is_met_in_another_spelling(self, as_earlier: bool, window: str, settings: Settings) -> None:
        where = str(ran(settings, registry.find_pipeline("visit-counts"), as_earlier=as_earlier))
        assert (
            read_live(where, registry.find_pipeline("visit-counts", {"window": window})) is None
        )  # it has no batch yet

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"window": "5m"}, "computes windows of 10 minutes; this would be windows of 5m"),
            ({"output_topic": "x"}, "writes to the Kafka topic .*; this would be Kafka topic x"),
        ],
    )
    def test_a_live_query_of_other_results_is_refused(
        self, as_earlier: bool, values: dict[str, str], message: str, settings: Settings
    ) -> None:
        where = str(ran(settings, registry.find_pipeline("visit-counts"), as_earlier=as_earlier))
        with pytest.raises(CheckpointError, match=message):
            read_live(where, registry.find_pipeline("visit-counts", values))

    def test_a_fork_does_not_write_where_its_origin_does(self, as_earlier: bool, settings: Settings) -> None:
        for sink, other in (
            (KafkaSink("out"), KafkaSink("out-v2")),
            (DeltaSink("out", ("id",)), DeltaSink("out-v2", ("id",))),
        ):
            mine = Pipeline("mine", "visits", lambda events: events, sink)
            where = ran(settings, mine, as_earlier=as_earlier)
            texts = {name: "x" for name in ("savepoint", "location", "checkpoint", "query_id")}
            fork = {**texts, "created": "2025-09-04T07:30:00+00:00", "batch": 1, "sink": sink.describe()}
            if not as_earlier:
                fork["sink_identity"] = sink.identity().__dict__
            (where / ownership.FORK).write_text(json.dumps(fork))
            with pytest.raises(CheckpointError, match="is a fork of x, which writes to the"):
                claim.check(str(where), mine)
            claim.check(str(where), replace(mine, sink=other))

    def test_only_an_archiver_of_the_table_is_waited_for(self, as_earlier: bool, settings: Settings) -> None:
        table = str(settings.home / "archive" / "same")
        wanted = {TopicPartition("visits", 0): [OffsetRange(0, 5)]}
        archiver = archive_topic("archiver", "visits", DECODER, table="same", timezone="UTC")
        counts = Pipeline("counts", "visits", lambda events: events, DeltaSink("same", ("id",)))
        elsewhere = archive_topic("elsewhere", "visits", DECODER, table="other", timezone="UTC")
        for pipeline in (archiver, counts, elsewhere):
            ran(settings, pipeline, as_earlier=as_earlier)
        with hold_archiving(settings, table, wanted):
            free = [
                claim.claim(str(Path(settings.checkpoint_store) / name), pipeline)
                for name, pipeline in _named(counts, elsewhere)
            ]
            assert claim.claim(str(Path(settings.checkpoint_store) / "archiver"), archiver) is None  # held meanwhile
            for lock in free:
                assert lock is not None
                lock.close()
        # A query that writes results to a table of the same name may run, and hinders nothing.
        running = claim.claim(str(Path(settings.checkpoint_store) / "counts"), counts)
        assert running is not None
        with running, hold_archiving(settings, table, wanted):
            pass
        archiving_now = claim.claim(str(Path(settings.checkpoint_store) / "archiver"), archiver)
        assert archiving_now is not None
        with (
            archiving_now,
            pytest.raises(PipelineError, match="The pipeline archiver is running"),
            hold_archiving(settings, table, wanted),
        ):
            pytest.fail("it was not waited for")


def _named(*wanted: Pipeline) -> list[tuple[str, Pipeline]]:
    return [(pipeline.name, pipeline) for pipeline in wanted]
