"""The description for programs says what is there, and all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.dflag.page.asking import OPEN, ask, put
from wigwag import dflag
from wigwag.dflag.page.routes import ROUTES
from wigwag.dflag.page.site import Site


def document() -> Any:
    return ask(Site(dflag.FlagSet("shop")), "GET", "/openapi.json").json


def resolved(part: Any, whole: Any) -> Any:
    """Follow a reference, if it is one."""
    for key in part.get("$ref", "").split("/")[1:]:
        whole = whole[key]
    return whole if "$ref" in part else part


def test_it_has_the_routes_and_no_others() -> None:
    described = {path: {method.upper() for method in methods} for path, methods in document()["paths"].items()}
    assert described == {path: set(methods) for path, methods in ROUTES.items()}


def test_each_operation_has_a_name_of_its_own_and_its_parameters() -> None:
    seen, whole = [], document()
    for path, methods in whole["paths"].items():
        for method, operation in methods.items():
            seen.append(operation["operationId"])
            assert operation["operationId"].startswith(ROUTES[path][method.upper()].value)
            parameters = [resolved(each, whole) for each in operation["parameters"]]
            in_path = [each["name"] for each in parameters if each["in"] == "path"]
            assert in_path == (["name"] if "{name}" in path else [])
            assert {"200", "421"} <= set(operation["responses"])
    assert len(seen) == len(set(seen))


def test_its_references_lead_somewhere() -> None:
    whole = document()

    def references(part: Any) -> list[str]:
        if isinstance(part, dict):
            return [part["$ref"]] if "$ref" in part else [each for value in part.values() for each in references(value)]
        return [each for value in part for each in references(value)] if isinstance(part, list) else []

    there = {f"#/components/{kind}/{name}" for kind, parts in whole["components"].items() for name in parts}
    assert set(references(whole)) == there - {"#/components/securitySchemes/token"}


def test_the_answers_have_the_members_that_it_promises(tmp_path: Path) -> None:
    flags = dflag.FlagSet("shop")
    flags.int("rate", 10)
    (tmp_path / "unknown").write_text("")
    updater = dflag.Updater(flags, tmp_path)
    updater.initialize()
    site = Site(flags, updater, OPEN)
    schemas = document()["components"]["schemas"]
    listing = ask(site, "GET", "/").json
    answers = {
        "Listing": listing,
        "Updater": listing["updater"],
        "Flag": ask(site, "GET", "/flags/rate").json,
        "Effect": put(site, "rate", 20).json,
        "Problem": put(site, "rate", "x").json,
    }
    for name, answer in answers.items():
        assert set(schemas[name]["properties"]) == set(answer) == set(schemas[name]["required"]), name
    [problem] = listing["updater"]["problems"]
    assert set(schemas["Updater"]["properties"]["problems"]["items"]["properties"]) == set(problem)


def test_the_answers_have_the_types_that_it_promises() -> None:
    flags = dflag.FlagSet("shop")
    flags.int("rate", 10)
    flag = ask(Site(flags), "GET", "/flags/rate").json
    types = {"string": str, "boolean": bool, "integer": int, "array": list}
    for name, schema in document()["components"]["schemas"]["Flag"]["properties"].items():
        if "type" in schema:
            assert isinstance(flag[name], types[schema["type"]]), name


def test_it_is_named_after_the_flags() -> None:
    assert document()["info"]["title"] == "Flags of shop"
    assert ask(Site(dflag.FlagSet()), "GET", "/openapi.json").json["info"]["title"] == "Flags"
