"""Unit tests need no JVM, and take no notice of one that other tests have started in the same process."""

import pytest

from respool.storage import lease


@pytest.fixture(autouse=True)
def _no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    # It would hold every checkpoint that a test holds, also those of forked processes, which are killed.
    monkeypatch.setattr(lease, "_jvm", lambda: None)
