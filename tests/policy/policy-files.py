#!/usr/bin/env python3
"""Do the three descriptions of a policy agree: the program, the schema for editors, a YAML library?

good files:  the schema accepts them; what a YAML library writes after reading one is the same policy
bad files:   the schema refuses them, but for those whose fault no schema can know
keys:        every key of the program's grammar is in the schema, and the reverse

XCLOUD names the program (default: ./xcloud), srcdir the source.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

SOURCE = os.environ.get("srcdir", ".")
XCLOUD = os.environ.get("XCLOUD", "./xcloud")
failures = 0

# What a schema does not see: how the text was written, order, names that refer to each other, and
# numbers that a list or a bracket must not have.
UNKNOWABLE = {
    # YAML's writing is gone when the schema looks
    "alias", "anchor", "tag", "tag-int", "local-tag", "two-documents", "duplicate-key", "duplicate-env",
    "merge-key", "env-nul", "env-octal", "env-float", "env-base60", "gpu-count-octal", "gpu-count-hex",
    "match-nodes-octal", "check-param-octal",
    # it has no memory
    "class-twice",
    # lists in a text
    "cpus-backwards", "cpus-huge", "cpus-list", "match-nodes", "match-nodes-range", "match-nodes-empty",
    "breaker-percent", "gpu-model-ambiguous", "gpu-model-id",
}


def check(holds, *says):
    global failures
    if not holds:
        failures += 1
        print("FAILED:", *says)


def xcloud(*arguments):
    return subprocess.run([XCLOUD, "policy", *arguments], capture_output=True, text=True)


def files(directory):
    return sorted(glob.glob(os.path.join(SOURCE, directory, "*.yaml")))


def explained(path, *more):
    result = xcloud("explain", "--json", "--policy", path, *more)
    check(result.returncode == 0, path, result.stderr)
    values = json.loads(result.stdout)["values"] if result.returncode == 0 else []
    return {(v["key"], v["value"], v["from"]) for v in values}


def round_trip(path):
    """Each class, by what install says changes; and a node and a job, by what explain says."""
    with open(path, encoding="utf-8") as file:
        written = yaml.safe_dump(yaml.safe_load(file))
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        other = os.path.join(directory, "other.yaml")
        with open(other, "w", encoding="utf-8") as file:
            file.write(written)
        first = xcloud("install", "--prefix", directory, path)
        check(first.returncode == 0, path, first.stderr)
        second = xcloud("install", "--prefix", directory, other)
        check(second.stdout.startswith("no value changes\n"), path,
              "is another policy after a YAML library's round trip:", second.stdout, second.stderr)
        for more in (["--node", "gpu001"], ["--node", "x"],
                     ["--node", "gpu001", "--partition", "dev", "--job-nodes", "16"]):
            check(explained(path, *more) == explained(other, *more), path, more)


def schema_keys(schema, node, path, out, where):
    """Paths of all properties below node, as `policy check --list-keys` writes them."""
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[1]
        node = schema["definitions"][name]
    for name, inner in node.get("properties", {}).items():
        if where not in ("resume",):
            out.add(path + name)
            schema_keys(schema, inner, path + name + ".", out, name)
    extra = node.get("additionalProperties")
    if isinstance(extra, dict):
        schema_keys(schema, extra, path + "*.", out, "*")
    if "items" in node and node.get("type") == "array":
        schema_keys(schema, node["items"], path[:-1] + "[].", out, "[]")
    for inner in node.get("anyOf", []):
        schema_keys(schema, inner, path, out, where)


def main():
    with open(os.path.join(SOURCE, "etc/policy.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)

    good = files("tests/policy/good") + files("etc/policy")
    check(len(good) > 6, "good files are missing")
    for path in good:
        with open(path, encoding="utf-8") as file:
            for error in validator.iter_errors(yaml.safe_load(file)):
                check(False, path, "refused by the schema:", list(error.path), error.message[:200])
        round_trip(path)

    bad = files("tests/policy/bad")
    check(len(bad) > 100, "bad files are missing")
    names = set()
    for path in bad:
        name = os.path.basename(path)[:-5]
        names.add(name)
        try:
            with open(path, encoding="utf-8") as file:
                data = yaml.safe_load(file)
        except (yaml.YAMLError, UnicodeDecodeError):
            continue
        refused = not validator.is_valid(data)
        check(refused or name in UNKNOWABLE, path, "is accepted by the schema")
    check(UNKNOWABLE <= names, "no such bad file:", UNKNOWABLE - names)

    in_schema = set()
    schema_keys(schema, schema, "", in_schema, "")
    in_program = set(xcloud("check", "--list-keys").stdout.split())
    check(len(in_program) > 100, "the program lists no keys")
    check(in_program == in_schema, "keys of the program alone:", sorted(in_program - in_schema),
          "keys of the schema alone:", sorted(in_schema - in_program))

    print(f"{len(good)} good files, {len(bad)} bad files, {len(in_program)} keys, {failures} failures")
    return 1 if failures else 0


sys.exit(main())
