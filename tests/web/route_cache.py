"""A cache of what FastAPI learns about a route: each test has an app of its own.

The routes of a workload are made anew for each app, from the same code: only what they close over
differs. What is read off the code (parameters, models, their validators) is the same, and takes a
tenth of a second for all of them.
"""

import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from fastapi import params, routing
from fastapi._compat import v2
from fastapi.dependencies import models
from fastapi.dependencies.models import Dependant
from pydantic import TypeAdapter
from starlette.routing import compile_path

Analysed = tuple[Dependant, list[Any], bool]

_analyse: Callable[..., Analysed] = routing._build_dependant_with_parameterless_dependencies
_make_field: Callable[..., Any] = routing.create_model_field  # type: ignore[attr-defined]
_read_return: Callable[..., Any] = routing.get_typed_return_annotation  # type: ignore[attr-defined]
_analysed: dict[tuple[Any, ...], Analysed] = {}
_returned: dict[Any, Any] = {}
_fields: dict[tuple[str, str, str], Any] = {}
_adapters: dict[tuple[str, str], TypeAdapter[Any]] = {}


def _dependant(*, path: str, call: Callable[..., Any], dependencies: Sequence[params.Depends]) -> Analysed:
    code = getattr(call, "__code__", None)
    if code is None:
        return _analyse(path=path, call=call, dependencies=dependencies)
    defaults = repr((call.__defaults__, call.__kwdefaults__))
    key = (path, code, defaults, tuple(depends.dependency for depends in dependencies))
    if key not in _analysed:
        _analysed[key] = _analyse(path=path, call=call, dependencies=dependencies)
    dependant, body, embedded = _analysed[key]
    return replace(dependant, call=call), body, embedded


def _return_annotation(call: Callable[..., Any]) -> Any:
    code = getattr(call, "__code__", call)
    if code not in _returned:
        _returned[code] = _read_return(call)
    return _returned[code]


def _field(name: str, type_: Any, mode: str) -> Any:
    key = (name, repr(type_), mode)
    if key not in _fields:
        _fields[key] = _make_field(name=name, type_=type_, mode=mode)
    return _fields[key]


def _adapter(kind: Any, *, config: Any = None) -> TypeAdapter[Any]:
    key = (repr(kind), repr(config))
    if key not in _adapters:
        _adapters[key] = TypeAdapter(kind, config=config)
    return _adapters[key]


class _Code(models._CallIdentity):
    """What kind of function a call is can be read off its code."""

    __slots__ = ("_code",)

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__(call)
        self._code = getattr(inspect.unwrap(call), "__code__", call)

    def __hash__(self) -> int:
        return id(self._code)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Code) and self._code is other._code


# A request is matched by the path and the method of sixty routes, and handled by one.


_make_route = routing.APIRoute.__init__
_compiled = cache(compile_path)
_known: set[str] = set()  # attributes of a route
_making = threading.RLock()


def _make_later(route: Any, path: str, endpoint: Any, *, methods: Any = None, **options: Any) -> None:
    route.path, route.endpoint = path, endpoint
    route.methods = {method.upper() for method in methods or ["GET"]}
    route.path_regex, route.path_format, route.param_convertors = _compiled(path)
    route.options_ = options
    if not _known:
        _make_now(route)
        _known.update(vars(route))


def _make_now(route: Any) -> None:
    with _making:
        if "options_" in vars(route):
            options = {**route.options_, "methods": route.methods}
            _make_route(route, route.path, route.endpoint, **options)
            del route.options_


def _attribute(route: Any, name: str) -> Any:
    """What is not there yet: the first that asks has the route made."""
    if name in _known:
        _make_now(route)
        return vars(route)[name]
    raise AttributeError(name)


def analyse_once() -> None:
    """From now on, in this process."""
    routing.APIRoute.__init__ = _make_later  # type: ignore[method-assign,assignment]
    routing.APIRoute.__getattr__ = _attribute  # type: ignore[attr-defined]
    models._CallIdentity = _Code  # type: ignore[misc]
    routing._build_dependant_with_parameterless_dependencies = _dependant
    routing.get_typed_return_annotation = _return_annotation  # type: ignore[attr-defined]
    routing.create_model_field = _field  # type: ignore[attr-defined,assignment]
    v2.TypeAdapter = _adapter  # type: ignore[attr-defined,assignment]
