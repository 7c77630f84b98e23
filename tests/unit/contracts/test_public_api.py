"""What a user can import from respool."""

import pytest

import respool
from respool import errors


def test_every_public_name_can_be_imported() -> None:
    for name in respool.__all__:
        assert getattr(respool, name) is not None
    from respool import JsonDecoder, Pipeline
    from respool.decoders.json import JsonDecoder as Original

    assert JsonDecoder is Original
    assert Pipeline.__module__ == "respool.pipeline.definition"


def test_every_error_is_public_and_says_when_it_is_raised() -> None:
    classes = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and kind.__module__ == errors.__name__
    }
    public = {name for name, kind in classes.items() if issubclass(kind, Exception)} | {"Refusal"}
    assert public <= set(respool.__all__)
    for name in public:
        assert getattr(respool, name) is classes[name]
        assert classes[name].__doc__


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Pipelines'"):
        respool.Pipelines  # noqa: B018
