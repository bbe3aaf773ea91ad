"""Judges a document by its schema after a change, without a look at what the change cannot matter to.

A report has hundreds of places, of which a change concerns one: to judge all of it each time takes
most of the time of a test that makes thousands of changes.
"""

import functools
import operator

import jsonschema

# Keywords that ask something of a part of a value, beside those that are followed here.
NOT_FOLLOWED = {"oneOf", "contains", "dependentRequired", "dependentSchemas", "patternProperties",
                "prefixItems", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef"}


class PlaceJudge:
    """Of changes to one document, in place, which without them is as its schema says."""

    def __init__(self, schema, document, paths):
        self.definitions = schema["$defs"]
        self.document = document
        self.judge = jsonschema.Draft202012Validator(schema)
        self.judge.validate(document)
        self.places = {path: self.place_of(path) for path in paths}

    def is_valid(self, path):
        """Whether the document is valid, of which what lies at this path has changed alone."""
        depth, schemas = self.places[path]
        value = self.at(path[:depth])
        return all(self.holds(schema, value) for schema in schemas)

    def at(self, path):
        return functools.reduce(operator.getitem, path, self.document)

    def holds(self, schema, value):
        return self.judge.evolve(schema=schema).is_valid(value)

    def place_of(self, path):
        """How deep the path must be followed to where nothing further up that decides what is asked of the
        document looks at what lies at its end, and the sub-schemas that hold there."""
        schemas, value, deciding = [self.judge.schema], self.document, []
        above = [schemas]
        for depth, key in enumerate(path):
            below = [self.below(schema, value, key) for schema in schemas]
            deciding = [(start, part) for start, schema in deciding
                        for part in sum(self.below(schema, value, key), [])]
            deciding += [(depth, part) for _, tests in below for part in tests]
            schemas, value = [part for parts, _ in below for part in parts], value[key]
            above.append(schemas)
        depth = min((start for start, _ in deciding), default=len(path))
        return depth, above[depth]

    def below(self, schema, value, key):
        """The sub-schemas for value[key]: those that it must be valid by, and those of which it depends
        what must be valid, such as the condition of an `if`."""
        if unknown := NOT_FOLLOWED & schema.keys():
            raise NotImplementedError(unknown)
        binding = [self.definitions[schema["$ref"].rpartition("/")[2]]] if "$ref" in schema else []
        binding += schema.get("allOf", [])
        deciding = [schema["not"]] if "not" in schema else []
        for part in schema.get("anyOf", []):
            (binding if self.holds(part, value) else deciding).append(part)
        if "if" in schema:
            deciding.append(schema["if"])
            branch = "then" if self.holds(schema["if"], value) else "else"
            binding.append(schema.get(branch, {}))
        binding = [self.below(part, value, key) for part in binding]
        deciding = [sum(self.below(part, value, key), []) for part in deciding]
        if isinstance(value, dict):
            own = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
        else:
            own = schema.get("items")
        return (sum((parts for parts, _ in binding), [] if own is None else [own]),
                sum((tests for _, tests in binding), sum(deciding, [])))
