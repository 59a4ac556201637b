"""Values that are checked when they are made: the base of settings, requests and replies.

Tensors are fields like any other. Where a value travels, its tensors go beside the JSON: serialised
with a `Tensors` as context, a tensor becomes a name in it, and validated with one, a name becomes
the tensor again.
"""

from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    SerializationInfo,
    ValidationError,
    ValidationInfo,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from torch import Tensor

from fedegoists.errors import SettingsError


class Validated(BaseModel):
    """A frozen value with exactly the declared fields, of exactly the declared types.

    Raises
    ------
    SettingsError
        When it is made from values that do not fit; the message names the first of them.

    Examples
    --------
    >>> class Steps(Validated):
    ...     steps: int
    >>> Steps(steps=3)
    Steps(steps=3)
    >>> Steps(steps=2.5)
    Traceback (most recent call last):
    ...
    fedegoists.errors.SettingsError: steps is 2.5; expected a whole number
    """

    # Scores may be NaN, such as an AUC with one class, and must arrive so. Values, such as seeds,
    # rarely repeat: only the keys are worth caching.
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        arbitrary_types_allowed=True,
        ser_json_inf_nan="constants",
        cache_strings="keys",
    )

    if not TYPE_CHECKING:  # checkers see the fields as arguments

        def __init__(self, /, **values: object) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise SettingsError(explained(error, type(self))) from None

        # Nested values are validated as part of the outer one, without this conversion.
        __init__.__pydantic_base_init__ = True

    def changed(self, **changes: object) -> Self:
        """Return the value with some fields changed, checked again."""
        return type(self)(**{**vars(self), **changes})


KINDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "finite_number": "a finite number",
}
LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def explained(error: ValidationError, kind: type[BaseModel] | None = None) -> str:
    """Return what is wrong with the first field that does not fit, in one line.

    Parameters
    ----------
    kind : type, optional
        The type of the value. Without it the offending input is not repeated: it could be anything.
    """
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part)[:40] for part in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")[:200]
    if kind is None or not where:
        return f"{where or 'the header'}: {message}" if kind is None else message
    if first["type"] == "missing":
        return f"no {where} in {kind.__name__}"
    if first["type"] == "extra_forbidden":
        return f"{kind.__name__} has no {where}; it has {', '.join(kind.model_fields)}"
    given = f"{where} is {str(first['input'])[:50]}"
    expected = KINDS.get(first["type"])
    field = kind.model_fields.get(where)
    if field is not None and (expected or first["type"].startswith(("greater", "less"))):
        whole = field.annotation is int
        expected = "a whole number" if whole else expected or "a number"
        meaning = f" ({field.description})" if field.description else ""
        return f"{given}; expected {expected}{_range(field)}{meaning}"
    return message if first["type"] == "value_error" else f"{given}; {message}"


def _range(field: FieldInfo) -> str:
    """Return the range of a number in words."""
    limits = {
        key: getattr(constraint, key)
        for constraint in field.metadata
        for key in LIMITS
        if getattr(constraint, key, None) is not None
    }
    if limits.keys() == {"ge", "le"}:
        return f", {limits['ge']:g} to {limits['le']:g}"
    return "".join(f", {LIMITS[key]} {limit:g}" for key, limit in limits.items())


class Tensors:
    """The tensors of values that travel, by name; equal ones travel once."""

    def __init__(self, named: dict[str, Tensor] | None = None) -> None:
        self.named: dict[str, Tensor] = named or {}
        self._used: set[str] = set()

    @property
    def unused(self) -> set[str]:
        """Names that no value had."""
        return self.named.keys() - self._used

    def name_of(self, tensor: Tensor) -> str:
        """Return a tensor's name, a new one if no equal tensor is known."""
        for name, known in self.named.items():
            alike = known.shape == tensor.shape and known.dtype == tensor.dtype
            if alike and torch.equal(known, tensor):
                return name
        name = str(len(self.named))
        self.named[name] = tensor
        return name

    def __getitem__(self, name: str) -> Tensor:
        self._used.add(name)
        return self.named[name]


def _checked(value: object, info: ValidationInfo) -> Tensor:
    if isinstance(value, str) and isinstance(info.context, Tensors):
        if value not in info.context.named:
            raise PydanticCustomError("wrong shape", "there is no such tensor")
        value = info.context[value]
    if not isinstance(value, Tensor):
        raise PydanticCustomError("wrong shape", f"a {type(value).__name__} where numbers belong")
    return value


def _numbers(value: object, info: ValidationInfo) -> Tensor:
    """Return a tensor of numbers; one that travelled must be of 32-bit floats."""
    tensor = _checked(value, info)
    if isinstance(info.context, Tensors) and tensor.dtype != torch.float32:
        raise PydanticCustomError("wrong shape", f"a tensor of {tensor.dtype}")
    return tensor


def _ring(value: object, info: ValidationInfo) -> Tensor:
    tensor = _checked(value, info)
    if tensor.ndim != 1 or tensor.layout != torch.strided or tensor.dtype != torch.int32:
        raise PydanticCustomError("wrong shape", "not one vector of 32-bit integers")
    return tensor


def _matrix(value: object, info: ValidationInfo) -> Tensor:
    tensor = _numbers(value, info)
    if tensor.ndim not in (1, 2):
        raise PydanticCustomError("wrong shape", f"{tuple(tensor.shape)} is no vector or matrix")
    return tensor


def _vector(value: object, info: ValidationInfo) -> Tensor:
    tensor = _numbers(value, info)
    if tensor.ndim != 1:
        raise PydanticCustomError("wrong shape", f"{tuple(tensor.shape)} is not one vector")
    return tensor


def _plain(tensor: Tensor) -> Tensor:
    if tensor.layout != torch.strided or tensor.dtype != torch.float32:
        raise PydanticCustomError("wrong shape", f"a {tensor.layout} tensor of {tensor.dtype}")
    return tensor


def _named(tensor: Tensor, info: SerializationInfo) -> str:
    assert isinstance(info.context, Tensors), "tensors travel beside their values"
    return info.context.name_of(tensor.detach().float().cpu().contiguous())


def _named_ring(tensor: Tensor, info: SerializationInfo) -> str:
    assert isinstance(info.context, Tensors), "tensors travel beside their values"
    assert tensor.dtype == torch.int32, "elements of the ring are 32-bit integers"
    return info.context.name_of(tensor.detach().cpu().contiguous())


Matrix = Annotated[Tensor, PlainValidator(_matrix), PlainSerializer(_named)]
"""One vector of numbers, or several as rows."""

Vector = Annotated[Tensor, PlainValidator(_vector), PlainSerializer(_named)]

ReplyMatrix = Annotated[
    Tensor,
    PlainValidator(lambda value, info: _plain(_matrix(value, info))),
    PlainSerializer(_named),
]
"""As silos answer: dense, with 32 bits."""

ReplyVector = Annotated[
    Tensor,
    PlainValidator(lambda value, info: _plain(_vector(value, info))),
    PlainSerializer(_named),
]

RingVector = Annotated[Tensor, PlainValidator(_ring), PlainSerializer(_named_ring)]
"""Integers modulo 2³², as bits of signed ones: what `fedegoists.federation.secure_sums` adds."""
