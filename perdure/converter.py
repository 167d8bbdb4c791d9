"""The data converter of Perdure, the same for clients and workers: how values become payloads and payloads values. Of
Perdure's plugin a client needs nothing else; without it, it loads nothing of the SDK's worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import DataConverter

from perdure.models.base import SignalModel, UnreadableValue
from perdure.text import one_line


def perdure_data_converter(converter: DataConverter | None = None) -> DataConverter:
    """Return a data converter whose payload converter is `Understanding`: the configured one, whose codec and failure
    converter stay, or pydantic's when none is configured."""
    return dataclasses.replace(converter or pydantic_data_converter, payload_converter_class=Understanding)


class Understanding(PydanticPayloadConverter):
    """Pydantic's payload converter, except that an argument that cannot be decoded is no error when no type, or a
    signal's argument, is expected: it becomes an UnreadableValue.

    Otherwise the error would fail a task of the workflow, which is tried for ever while the sender waits. JavaScript
    sends such an argument when it cuts a text in the middle of a character.
    """

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Decode each payload as the type at its place; those beyond the last type have none."""
        hints: list[Any] = [*(type_hints or ()), *[None] * len(payloads)]
        return [self._decode_payload(payload, hint) for payload, hint in zip(payloads, hints, strict=False)]

    def _decode_payload(self, payload: Payload, hint: Any) -> Any:
        """Decode one payload as the type `hint`, and raise the converter's error when that fails. When no type is
        expected (None or Any), or the argument of a signal, return an UnreadableValue with the reason instead."""
        try:
            return super().from_payloads([payload], [hint])[0]
        except Exception as error:
            is_signal = isinstance(hint, type) and issubclass(hint, SignalModel)
            if hint is not None and hint is not Any and not is_signal:
                raise
            return UnreadableValue(_summarize_error(error))


def _summarize_error(error: Exception) -> str:
    message = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error).strip("'")
    return one_line(message)
