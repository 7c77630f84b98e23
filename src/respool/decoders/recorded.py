"""A decoder, made again from its recorded identity."""

from typing import Any

from respool.decoders.csv import CsvDecoder
from respool.decoders.json import JsonDecoder
from respool.decoders.protocol import Decoder
from respool.decoders.text import RawDecoder, TextDecoder
from respool.errors import PipelineError
from respool.identity import Identity

# A decoder that depends on code, on a file or on a schema registry is more than its identity.
_COMPLETE: dict[str, Any] = {kind.KIND: kind for kind in (CsvDecoder, JsonDecoder, RawDecoder, TextDecoder)}


def decoder_of_identity(identity: Identity) -> Decoder | None:
    """Return the decoder of an identity; None when the identity does not describe it completely, or wrongly."""
    kind = _COMPLETE.get(identity.kind)
    if kind is None:
        return None
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in identity.fields.items()}
    try:
        decoder: Decoder = kind(**fields)
        decoder.check()
    except (TypeError, PipelineError):
        return None
    return decoder
