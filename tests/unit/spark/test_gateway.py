"""What is shown of the output of the JVM and of the tasks."""

from respool.spark.gateway import without_noise

FRAMES = [b"Traceback (most recent call last):\n", b'  File "worker.py", line 1, in <module>\n', b"    ^^^\n"]
NOT_CONNECTED = (
    b'pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket: ["x"].\n'
)


def shown(*lines: bytes) -> list[bytes]:
    return list(without_noise(lines))


def test_what_the_jvm_prints_at_its_start_is_left_out() -> None:
    start = (b"WARNING: Using incubator modules: a\n", b"Starting Streaming TransformWithState\n", b"\n")
    assert shown(*start, b"mine\n", b"\n") == [b"mine\n", b"\n"]


def test_a_worker_that_could_not_connect_prints_no_stack_trace() -> None:
    assert shown(b"a\n", *FRAMES, NOT_CONNECTED, *FRAMES, NOT_CONNECTED, b"b\n") == [b"a\n", b"b\n"]


def test_the_stack_trace_of_a_users_code_is_shown() -> None:
    mine = [*FRAMES, b"ValueError: mine\n"]
    assert shown(*mine, b"after\n") == [*mine, b"after\n"]
    assert shown(*FRAMES, *mine) == [*FRAMES, *mine]
    assert shown(*FRAMES) == FRAMES
