"""A consumer that is killed in the middle of a batch runs the whole batch again, and misses nothing."""

from collections import Counter
from pathlib import Path

from respool.demo.player import sent_visits
from respool.demo.process import RunningCommand, printed_visits
from respool.kafka import producer, topics
from respool.kafka.cluster import KafkaCluster
from respool.local import broker
from respool.settings import Settings
from respool.visits.generator import VisitsPlan, generate

BATCH = 8_000
PATIENCE = 180


def test_a_batch_that_was_killed_half_way_runs_again_whole(tmp_path: Path) -> None:
    words = ("run", "micro-batch", "--trigger", "0s", "--max-offsets-per-trigger", str(BATCH), "--no-dead-letter")
    with broker.running(Settings(home=tmp_path)) as started:
        kafka = KafkaCluster(started.address)
        topics.create(kafka, "visits", partitions=2)
        producer.produce(kafka, "visits", generate(VisitsPlan(count=3 * BATCH)))

        killed = RunningCommand(words, tmp_path, show=lambda line: None)
        killed.wait_for(lambda lines: len(lines) > 1.2 * BATCH, PATIENCE)
        killed.kill()
        checkpoint = tmp_path / "checkpoints" / "micro-batch"
        assert (checkpoint / "offsets" / "1").is_file()
        assert not (checkpoint / "commits" / "1").exists()  # it was in the middle of batch 1

        again = RunningCommand((*words, "--available-now"), tmp_path, show=lambda line: None)
        assert again.finish(PATIENCE) == 0
        sent = Counter(sent_visits(kafka, "visits"))

    first, second = Counter(printed_visits(killed.lines)), Counter(printed_visits(again.lines))
    assert (first - sent).total() == (second - sent).total() == 0
    finished = sent - second  # what batch 0 printed is not printed again
    assert BATCH * 0.99 <= finished.total() <= BATCH
    assert (finished - first).total() == 0  # and none of it was missed
    half = first - finished
    assert half.total() > 0  # batch 1 had begun, and was replayed completely
    assert (half - second).total() == 0
