"""docs/openapi.json against the server: paths, examples, shapes. make api-fuzz does it at random."""

import json
import re

import pytest
from support import ROOT

SPEC = json.loads((ROOT / "docs" / "openapi.json").read_text())
OPERATIONS = [(path, method) for path, methods in SPEC["paths"].items() for method in methods]
TYPES = {"string": str, "object": dict, "array": list, "boolean": bool, "null": type(None)}


def wrong(schema, value, where="$"):
    """What of a value is not as its schema says; the keywords that docs/openapi.json uses."""
    if "$ref" in schema:
        return wrong(SPEC["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], value, where)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            found = [wrong(option, value, where) for option in schema[keyword]]
            return [] if [] in found else sum(found, [])
    if "const" in schema and value != schema["const"] or value not in schema.get("enum", [value]):
        return [f"{where}: {value!r}"]
    kind = schema.get("type")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind in TYPES and not isinstance(value, TYPES[kind]):
        return [f"{where}: {value!r} is no {kind}"]
    if kind in ("integer", "number") and (not is_number or kind == "integer" and value % 1):
        return [f"{where}: {value!r} is no {kind}"]
    if is_number and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return [f"{where}: {value}"]
    found = []
    if isinstance(value, dict):
        found = [f"{where}.{key} is missing" for key in schema.get("required", [])
                 if key not in value]
        for key, member in schema.get("properties", {}).items():
            found += wrong(member, value[key], f"{where}.{key}") if key in value else []
    elif isinstance(value, list):
        found = [] if len(value) >= schema.get("minItems", 0) else [f"{where} is too short"]
        for i, item in enumerate(value):
            found += wrong(schema.get("items", {}), item, f"{where}[{i}]")
    return found


def test_the_check_finds_faults():
    schema = {"$ref": "#/components/schemas/ChatAnswer"}
    content = SPEC["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]
    good = content["application/json"]["example"]
    assert wrong(schema, good) == []
    for key in SPEC["components"]["schemas"]["ChatAnswer"]["required"]:
        assert wrong(schema, {k: v for k, v in good.items() if k != key}), key
    assert wrong(schema, {**good, "created": "now"}) and wrong(schema, {**good, "choices": []})


@pytest.mark.parametrize("path, method", OPERATIONS)
def test_operation(model, path, method):
    operation = SPEC["paths"][path][method]
    path = path.replace("{model}", "deepseek-chat")
    body, good = None, operation["responses"]["200"]["content"]
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        body = content["example"]
        assert wrong(content["schema"], body) == []
    answer = model.ask(method.upper(), path, body)
    assert answer.status == 200, answer.body
    kind = answer.headers["content-type"].split(";")[0]
    assert kind in good
    if kind == "application/json":
        assert wrong(good[kind]["schema"], answer.json) == []
        if "example" in good[kind]:
            assert wrong(good[kind]["schema"], good[kind]["example"]) == []
    if "text/event-stream" in good:
        assert model.ask(method.upper(), path, {**body, "stream": True}).events
    if body is not None:
        refused = model.ask(method.upper(), path, b"{")
        assert wrong(operation["responses"]["4XX"]["content"]["application/json"]["schema"],
                     refused.json) == []


def test_every_path_is_described():
    """Also in docs/http_api.md."""
    source = (ROOT / "src" / "server" / "service.cc").read_text()
    served = set(re.findall(r'"(/[a-z0-9_/]+(?:/\{model\.\.\.\})?)"', source))
    assert len(served) > 20
    described = {path.replace("{model}", "{model...}") for path in SPEC["paths"]}
    assert served == described
    text = (ROOT / "docs" / "http_api.md").read_text()
    for path in SPEC["paths"]:
        assert path.replace("{model}", "{name}") in text, path
