"""Types in Go, Java, Python and TypeScript: those that usual generators make of docs/schema, and ours in examples/, are
built, read every example, and write it back with the same meaning."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from schemas import SHAPES
from tests.needs import require
from tests.schemas.test_schemas import BY_NAME, ROOT, read

USUAL = ("request", "result", "progress", "event", "backlog")
EXAMPLES = {shape.name: shape.examples() for shape in SHAPES}
MISSPELT = {"repository": "/r", "request": "x", "phases": ["shp"]}

GO_GENERATOR = "github.com/atombender/go-jsonschema@v0.24.1"
NODE_PACKAGES = ("json-schema-to-typescript@16.0.0", "typescript@7.0.2")
PYTHON_GENERATOR = "datamodel-code-generator==0.89.0"
UNREACHABLE = re.compile(
    r"Could not (transfer|resolve)|UnknownHost|dial tcp|proxy\.|ENOTFOUND|ETIMEDOUT|EAI_AGAIN|ECONN|E404|ETARGET"
    r"|Could not fetch|No matching distribution|Connection|404|410 Gone|timed out",
)
"""In what a package manager writes where a package cannot be had."""

_FETCH_S = 240


def fetch(cwd: Path, *command: str, **env: str) -> None:
    """Run a package manager; the running test is left out where the package cannot be had."""
    try:
        run(cwd, *command, timeout=_FETCH_S, **env)
    except subprocess.TimeoutExpired:
        pytest.skip(f"types were NOT generated: {command[0]} has not fetched its packages in {_FETCH_S} s")
    except AssertionError as error:
        if UNREACHABLE.search(str(error)):
            pytest.skip(f"types were NOT generated: {command[0]} cannot fetch its packages here: {str(error)[-300:]}")
        raise


def run(cwd: Path, *command: str, given: Any = None, timeout: float = 120, code: int = 0, **env: str) -> str:
    """The output of a program, and what it writes about errors where it has to fail."""
    done = subprocess.run(
        command,
        cwd=cwd,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **env},
    )
    assert (done.returncode != 0) is bool(code), f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr if code else done.stdout


def assert_same_meaning(written: dict[str, list[dict[str, Any]]], names: tuple[str, ...]) -> None:
    """For whoever receives them: ours, where they are sent; else a program that reads what is documented."""
    assert written.keys() == set(names)
    for name in names:
        shape = BY_NAME[name]
        for back, example in zip(written[name], EXAMPLES[name], strict=True):
            read(shape, back) if shape.sent else None
            assert shape.model.model_validate(back) == shape.model.model_validate(example), name


# Go


def go_program(directory: Path, types: dict[str, str], imports: list[str]) -> None:
    """A module that reads the examples of each schema as a type, and writes them."""
    lines = [f'\t\t"{name}": read[{type_}](examples["{name}"]),' for name, type_ in types.items()]
    (directory / "go.mod").write_text("module example\n\ngo 1.21\n")
    (directory / "main.go").write_text(
        "\n".join(
            [
                "package main",
                'import ("encoding/json"; "os")',
                *(f'import "example/{name}"' for name in imports),
                "func read[T any](text json.RawMessage) (values []T) {",
                "\tif text != nil { if err := json.Unmarshal(text, &values); err != nil { panic(err) } }",
                "\treturn values",
                "}",
                "func main() {",
                "\tvar examples map[string]json.RawMessage",
                "\tif err := json.NewDecoder(os.Stdin).Decode(&examples); err != nil { panic(err) }",
                "\tjson.NewEncoder(os.Stdout).Encode(map[string]any{",
                *lines,
                "\t})",
                "}",
            ]
        )
    )


@pytest.mark.story
@pytest.mark.timeout(180)
def test_our_go_types_read_and_write_every_example_and_know_no_misspelt_value(tmp_path: Path) -> None:
    require("go")
    (tmp_path / "perdure").mkdir()
    types = (ROOT / "examples/clients/go/perdure/types.go").read_text()
    (tmp_path / "perdure/types.go").write_text(types)
    go_program(tmp_path, {shape.name: f"perdure.{shape.model.__name__}" for shape in SHAPES}, ["perdure"])
    assert run(tmp_path, "gofmt", "-l", "perdure") == ""
    run(tmp_path, "go", "vet", "./perdure")
    written = json.loads(run(tmp_path, "go", "run", ".", given=EXAMPLES, GOFLAGS="-mod=mod"))
    assert_same_meaning(written, tuple(EXAMPLES))
    assert written["result"] == EXAMPLES["result"]
    (tmp_path / "main.go").write_text(
        'package main\nimport "example/perdure"\nfunc main() { println(perdure.PhaseShp) }'
    )
    assert "undefined: perdure.PhaseShp" in run(tmp_path, "go", "vet", ".", code=1)
    assert set(re.findall(r"^\t(\w+) any ", types, re.M)) == set()


@pytest.mark.story
@pytest.mark.timeout(400)
def test_go_jsonschema_makes_types_that_read_and_write_every_example(tmp_path: Path) -> None:
    require("go")
    fetch(tmp_path, "go", "install", GO_GENERATOR, GOBIN=str(tmp_path / "bin"), GOFLAGS="-mod=mod")
    source = ""
    for name in USUAL:
        (tmp_path / name).mkdir()
        words = ("-p", name, "--tags", "json", "--struct-name-from-title", "-o", f"{name}/{name}.go")
        run(tmp_path, str(tmp_path / "bin/go-jsonschema"), *words, str(ROOT / f"docs/schema/{name}.json"))
        source += (tmp_path / name / f"{name}.go").read_text()
    # A number or a text has no type in Go. An enumeration that may be null is one that checks its value.
    untyped = set(re.findall(r"^\t(\w+) +(?:map\[string\])?interface\{\}", source, re.M))
    assert untyped == {"Value"}
    go_program(tmp_path, {name: f"{name}.{BY_NAME[name].model.__name__}" for name in USUAL}, list(USUAL))
    run(tmp_path, "go", "build", "-o", "example", ".", GOFLAGS="-mod=mod")
    written = json.loads(run(tmp_path, "./example", given={name: EXAMPLES[name] for name in USUAL}))
    assert_same_meaning(written, USUAL)
    assert "shp" in run(tmp_path, "./example", given={"request": [MISSPELT]}, code=1)


# Python


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"generated_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its annotations are looked up
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_datamodel_code_generator_makes_types_that_read_and_write_every_example(tmp_path: Path) -> None:
    words = ("--quiet", "--no-input", "--only-binary", ":all:", "--target", "packages")
    fetch(tmp_path, sys.executable, "-m", "pip", "install", *words, PYTHON_GENERATOR)
    (tmp_path / "schemas").mkdir()
    for name in USUAL:
        (tmp_path / f"schemas/{name}.json").write_text((ROOT / f"docs/schema/{name}.json").read_text())
    generator = (sys.executable, "-m", "datamodel_code_generator", "--input-file-type", "jsonschema")
    model = ("--output-model-type", "pydantic_v2.BaseModel")
    run(tmp_path, *generator, *model, "--input", "schemas", "--output", "types", PYTHONPATH=str(tmp_path / "packages"))
    modules = {name: module_of(tmp_path / f"types/{name}.py") for name in USUAL}
    source = "".join((tmp_path / f"types/{name}.py").read_text() for name in USUAL)
    assert set(re.findall(r"^    (\w+): .*\bAny\b", source, re.M)) == {"state", "data"}
    written = {}
    for name in USUAL:
        type_ = getattr(modules[name], BY_NAME[name].model.__name__)
        values = [type_.model_validate_json(json.dumps(example)) for example in EXAMPLES[name]]
        written[name] = [json.loads(value.model_dump_json(exclude_unset=True)) for value in values]
    assert written == {name: EXAMPLES[name] for name in USUAL}
    request = modules["request"].DeliveryRequest(**EXAMPLES["request"][0])
    assert (request.spec_version, request.push, request.gates, request.base) == (1, False, [], None)
    delivered, not_delivered = (modules["result"].DeliveryResult(**example) for example in EXAMPLES["result"])
    assert delivered.reason is None
    assert not_delivered.reason is modules["result"].Reason.tests_red
    with pytest.raises(ValueError, match="phases"):
        modules["request"].DeliveryRequest(**MISSPELT)


# TypeScript


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_json_schema_to_typescript_makes_types_of_which_every_example_is_one(tmp_path: Path) -> None:
    require("node", "npm")
    words = ("--no-audit", "--no-fund", "--no-save", "--no-package-lock")
    fetch(tmp_path, "npm", "install", *words, *NODE_PACKAGES)
    binaries = tmp_path / "node_modules/.bin"
    for name in USUAL:
        run(tmp_path, str(binaries / "json2ts"), "-i", str(ROOT / f"docs/schema/{name}.json"), "-o", f"{name}.ts")
    source = "".join((tmp_path / f"{name}.ts").read_text() for name in USUAL)
    assert re.findall(r"^ +(\w+)\??: .*\bunknown\b", source, re.M) == []
    (tmp_path / "perdure.ts").write_text((ROOT / "examples/clients/typescript/perdure.ts").read_text())
    lines = []
    for shape in SHAPES:
        for module in ["perdure", *([shape.name] if shape.name in USUAL else [])]:
            name = f"{module}_{shape.name}"
            lines.append(f'import type {{ {shape.model.__name__} as {name} }} from "./{module}.js";')
            lines.append(f"export const examples_{name}: {name}[] = {json.dumps(EXAMPLES[shape.name])};")
    compiler = (str(binaries / "tsc"), "--noEmit", "--strict", "--module", "nodenext", "--types", "")
    (tmp_path / "examples.ts").write_text("\n".join(lines))
    run(tmp_path, *compiler, "examples.ts")
    for module in ("perdure", "request"):
        misspelt = f'import type {{ DeliveryRequest }} from "./{module}.js";\n'
        misspelt += f"export const request: DeliveryRequest = {json.dumps(MISSPELT)};"
        (tmp_path / "misspelt.ts").write_text(misspelt)
        assert '"shp"' in run(tmp_path, *compiler, "misspelt.ts", code=1)


# Java

POM = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>example</groupId><artifactId>example</artifactId><version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies><dependency>
    <groupId>com.fasterxml.jackson.core</groupId><artifactId>jackson-databind</artifactId><version>2.17.2</version>
  </dependency></dependencies>
  <build><plugins><plugin>
    <groupId>org.jsonschema2pojo</groupId><artifactId>jsonschema2pojo-maven-plugin</artifactId><version>1.2.2</version>
    <configuration>
      <sourceDirectory>schemas</sourceDirectory><targetPackage>generated</targetPackage>
      <outputDirectory>generated</outputDirectory><useTitleAsClassname>true</useTitleAsClassname>
      <inclusionLevel>ALWAYS</inclusionLevel>
    </configuration>
    <executions><execution><goals><goal>generate</goal></goals></execution></executions>
  </plugin></plugins></build>
</project>
"""
MAIN = """
import com.fasterxml.jackson.databind.*;
import java.util.*;

public class Main {
    static final ObjectMapper MAPPER = new ObjectMapper();

    static void read(Map<String, List<Object>> written, JsonNode examples, String name, Class<?> type)
            throws Exception {
        List<Object> values = new ArrayList<>();
        for (JsonNode example : examples.path(name)) values.add(MAPPER.treeToValue(example, type));
        written.put(name, values);
    }

    public static void main(String[] args) throws Exception {
        JsonNode examples = MAPPER.readTree(System.in);
        Map<String, List<Object>> usual = new HashMap<>(), ours = new HashMap<>();
        %s
        MAPPER.writeValue(System.out, List.of(usual, ours));
    }
}
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_jsonschema2pojo_and_we_make_java_types_that_read_and_write_every_example(tmp_path: Path) -> None:
    require("mvn")
    sources, schemas = tmp_path / "src/main/java", tmp_path / "schemas"
    schemas.mkdir()
    for name in USUAL:
        (schemas / f"{name}.json").write_text((ROOT / f"docs/schema/{name}.json").read_text())
    (sources / "perdure").mkdir(parents=True)
    ours = ROOT / "examples/clients/java/src/main/java/perdure/Types.java"
    (sources / "perdure/Types.java").write_text(ours.read_text())
    (tmp_path / "pom.xml").write_text(POM)
    reads = [f'read(usual, examples, "{name}", generated.{BY_NAME[name].model.__name__}.class);' for name in USUAL]
    reads += [f'read(ours, examples, "{s.name}", perdure.Types.{s.model.__name__}.class);' for s in SHAPES]
    (sources / "Main.java").write_text(MAIN % "\n        ".join(reads))
    fetch(tmp_path, "mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath")
    source = "".join(path.read_text() for path in (tmp_path / "generated").rglob("*.java"))
    assert re.findall(r"private Object (\w+)", source) == []
    java = ("java", "-cp", f"target/classes:{(tmp_path / 'classpath').read_text()}", "Main")
    usual, own = json.loads(run(tmp_path, *java, given=EXAMPLES))
    assert_same_meaning(usual, USUAL)
    assert_same_meaning(own, tuple(EXAMPLES))
    assert own["result"] == EXAMPLES["result"]
    assert "shp" in run(tmp_path, *java, given={"request": [MISSPELT]}, code=1)
