"""What Python workers are forked from on one machine: a process that has loaded what they need, once for all of them.

Spark starts it by its name, with the name of the worker's module.
"""

import numpy  # noqa: F401
import pandas  # noqa: F401
import pyarrow  # noqa: F401

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()
