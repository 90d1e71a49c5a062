"""POST /graphql, executed by graphql-core against the part of GitHub's schema in schema.graphql.

A node is a mapping with what this GitHub models of a type; a field that it lacks raises, so that
nothing is null by accident. A query that the schema does not allow fails the test.
"""

from __future__ import annotations

import http
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from pydantic import JsonValue

from tests.github.connections import Arguments, Node, RefusalError
from tests.github.mutations import mutation_root
from tests.github.nodes import query_root
from tests.github.wire import Answer, GitHubFault, Json, Request, UnmodelledError, route

if TYPE_CHECKING:
    from graphql import DocumentNode, GraphQLError, GraphQLResolveInfo, GraphQLSchema

_KEYS: Final = ("query", "variables", "operationName")


@route("POST", "/graphql", scopes=("read:user", "public_repo", "repo"), resource="graphql")
def graphql(request: Request) -> Answer:
    """Execute a query or a mutation; errors come with status 200, as GitHub's do."""
    if request.user is None:
        raise GitHubFault(401, "This endpoint requires you to be authenticated.")
    body = request.json(*_KEYS)
    query, variables, name = (body.get(key) for key in _KEYS)
    if not isinstance(query, str):
        raise GitHubFault(400, "A query attribute must be specified and must be a string.")
    if not isinstance(variables, dict | None):
        raise GitHubFault(400, "Variables must be an object.")
    document = _document(query)
    return Answer(
        http.HTTPStatus.OK, _execute(request, document, variables, cast("str | None", name))
    )


@cache
def schema() -> GraphQLSchema:
    """Return the part of GitHub's schema that this GitHub has."""
    from graphql import build_schema

    return build_schema(Path(__file__).with_name("schema.graphql").read_text(encoding="utf-8"))


@cache
def _document(query: str) -> DocumentNode:
    """Parse a query and hold it against the schema.

    Raises:
        UnmodelledError: It is no query of GitHub's.
    """
    from graphql import GraphQLSyntaxError, parse, validate

    try:
        document = parse(query)
    except GraphQLSyntaxError as error:
        raise UnmodelledError(f"GraphQL that cannot be read: {error}") from error
    if wrong := validate(schema(), document):
        raise UnmodelledError(f"GraphQL that the schema refuses: {_words(wrong)}")
    return document


def _execute(
    request: Request, document: DocumentNode, variables: Json | None, name: str | None
) -> Json:
    """Execute a query that the schema allows.

    Raises:
        UnmodelledError: It asks for what this GitHub does not model, or a node is not what the
            schema says, or variables are wrong.
    """
    from graphql import ExecutionResult, execute_sync

    wrote = any(
        getattr(getattr(one, "operation", None), "value", "") == "mutation"
        for one in document.definitions
    )
    result = execute_sync(
        schema(),
        document,
        root_value=mutation_root(request) if wrote else query_root(request),
        variable_values=variables,
        operation_name=name,
        field_resolver=_resolve,
    )
    assert isinstance(result, ExecutionResult)
    answer: Json = {"data": cast("Json | None", result.data)}
    if result.errors:
        if any(not isinstance(one.original_error, RefusalError) for one in result.errors):
            raise UnmodelledError(f"GraphQL: {_words(result.errors)}")
        answer["errors"] = [_refusal(one) for one in result.errors]
    return answer


def _resolve(source: Node, info: GraphQLResolveInfo[Node], **arguments: JsonValue) -> object:
    """Give a field of a node."""
    if info.field_name not in source:
        raise UnmodelledError(f"{info.parent_type.name}.{info.field_name} is not modelled")
    value = source[info.field_name]
    if callable(value):
        return value(Arguments(f"{info.parent_type.name}.{info.field_name}", arguments))
    if arguments:
        raise UnmodelledError(
            f"{info.parent_type.name}.{info.field_name}: arguments {sorted(arguments)}"
        )
    return value


def _words(errors: Sequence[GraphQLError]) -> str:
    return "; ".join(one.message for one in errors)


def _refusal(error: GraphQLError) -> Json:
    """Write an error as GitHub does."""
    assert isinstance(error.original_error, RefusalError)
    found: Json = {"type": error.original_error.kind, "path": cast("JsonValue", error.path)}
    found["locations"] = [{"line": one.line, "column": one.column} for one in error.locations or ()]
    found["message"] = error.message
    return found
