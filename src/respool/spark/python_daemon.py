"""The process from which Python workers are forked on one machine, with their libraries already loaded.

Spark starts it by the setting spark.python.daemon.module, as it would start pyspark.daemon.
"""

import numpy  # noqa: F401
import pandas  # noqa: F401
import pyarrow  # noqa: F401

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()
