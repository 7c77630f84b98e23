"""The files of the embedded broker, without a broker."""

import uuid

import pytest

from respool.local import broker_files


def test_no_cluster_id_looks_like_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter([uuid.UUID(int=0xF8 << 120), uuid.UUID(int=0xFB << 120), uuid.UUID(int=1)])  # -…, -…, A…
    monkeypatch.setattr(uuid, "uuid4", lambda: next(made))
    assert broker_files._new_id() == "AAAAAAAAAAAAAAAAAAAAAQ"
