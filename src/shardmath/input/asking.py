"""Functions made of a frozen dataclass: its fields are their arguments, and other keywords are further parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, getdoc, signature
from typing import Any, ParamSpec, Protocol, TypeVar, get_type_hints, overload

from shardmath.errors import InputError
from shardmath.generated.definitions import PARAMETERS
from shardmath.input.arguments import typed
from shardmath.input.parameters import MACHINE, OTHERS, nearest_parameter

Arguments = ParamSpec("Arguments")
Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result_co = TypeVar("Result_co", covariant=True)
#: Field that takes further parameters by name.
FURTHER = "others"


class Asking(Protocol[Arguments, Result_co]):
    """Function with the fields of a dataclass as arguments; type checkers allow further parameters by name."""

    __name__: str

    @overload
    def __call__(self, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result_co: ...
    @overload
    def __call__(self, *arguments: Any, **options: Any) -> Result_co: ...


def constructor(kind: Callable[Arguments, Question], documentation: str) -> Asking[Arguments, Question]:
    """Return a dataclass's checked constructor; further keywords become ``others``. Raises InputError for others."""
    shape = signature(kind)
    own = [item for name, item in shape.parameters.items() if name != FURTHER]
    names = {item.name for item in own}

    def made(*arguments: Any, **options: Any) -> Question:
        fields = {name: value for name, value in options.items() if name in names}
        others = {name: value for name, value in options.items() if name not in names}
        for name in others:
            if name not in PARAMETERS:
                rule, known = "must be a parameter of the job", (*sorted(names), *OTHERS, *MACHINE)
                raise InputError("parameter", name, rule, nearest_parameter(name, known))
        make: Callable[..., Question] = kind
        return make(*arguments, **fields, **{FURTHER: others})

    hints = {name: hint for name, hint in get_type_hints(kind).items() if name in names}
    made.__name__ = made.__qualname__ = getattr(kind, "__name__", "")
    made.__doc__ = documentation
    made.__annotations__ = {**hints, FURTHER: int, "return": kind}
    further = Parameter(FURTHER, Parameter.VAR_KEYWORD, annotation="int")
    made.__signature__ = shape.replace(  # type: ignore[attr-defined]
        parameters=[*own, further], return_annotation=made.__name__)
    checked: Asking[Arguments, Question] = typed(made)
    return checked


def asked_with(
    name: str, question: Asking[Arguments, Question], answer: Callable[[Question], Answer],
) -> Asking[Arguments, Answer]:
    """Return ``answer`` as a function ``name`` of the arguments of ``question``, with their types and documentation."""

    @wraps(answer)
    def asked(*arguments: Any, **options: Any) -> Answer:
        return answer(question(*arguments, **options))

    asked.__name__ = asked.__qualname__ = name
    asked.__doc__ = f"{getdoc(answer)}\n\n{(getdoc(question) or '').partition(chr(10) * 2)[2]}"
    result = answer.__annotations__["return"]
    asked.__annotations__ = {**question.__annotations__, "return": result}
    asked.__signature__ = signature(question).replace(return_annotation=result)  # type: ignore[attr-defined]
    return asked
