"""The README's tour in Python: rewind and undo, savepoint and fork, audit and reprocess.

A broker and its visits come first:

    respool broker start
    respool generate --count 1000 --late 0.02 --lateness 4h --malformed 0.01 --partitions 1
    respool generate --count 1 --start 2024-01-02T00:00
    python time_travel.py
"""

import respool
from respool.testing import local_spark

counts, archive = respool.find_pipeline("visit-counts"), respool.find_pipeline("visits-archive")
patient = respool.find_pipeline("visit-counts", watermark="1 hour")

with local_spark() as spark:
    respool.run(counts, archive, available_now=True, max_offsets_per_trigger=200, spark=spark)

    # Rewind to batch 3, and undo it.
    checkpoint = respool.Checkpoint("visit-counts")
    plan = checkpoint.plan_rewind(to_batch=3)
    print(plan)
    checkpoint.apply(plan)
    checkpoint.apply(checkpoint.plan_undo())

    # Would a longer watermark count the late visits? Fork a savepoint, compare, promote the fork, and undo that.
    fork = respool.Savepoints().create(checkpoint, "monday", batch=1).fork("counts-v2")
    respool.run(patient, checkpoint="counts-v2", sink_suffix="-v2", available_now=True, spark=spark)
    print(respool.diff(checkpoint, fork, spark=spark))
    checkpoint.apply(checkpoint.plan_promote(fork))
    checkpoint.apply(checkpoint.plan_undo())

    # Compare what was published with the archive of all records, and compute again what differs.
    span = respool.plan_reprocess(counts, "2024-01-01T01:00Z", "2024-01-01T09:00Z")
    print(respool.audit(span, spark=spark))
    print(respool.reprocess(span, spark=spark))
    print(respool.audit(span, spark=spark))
