"""What a user can import from respool."""

import pytest

import respool


def test_every_public_name_can_be_imported() -> None:
    for name in respool.__all__:
        assert getattr(respool, name) is not None
    from respool import JsonDecoder, Pipeline
    from respool.decode import JsonDecoder as Original

    assert JsonDecoder is Original
    assert Pipeline.__module__ == "respool.pipeline"


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Pipelines'"):
        respool.Pipelines  # noqa: B018
