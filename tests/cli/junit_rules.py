"""What two schemas of JUnit XML ask for, that of Jenkins' xunit plugin (model/xsd/junit-10.xsd of
github.com/jenkinsci/xunit-plugin), which fails a step over it, and that of Ant's reports (JUnit.xsd of
github.com/windyroad/JUnit-Schema): a file that keeps these rules is valid by both."""

import datetime
import re
import xml.etree.ElementTree as ElementTree

# Elements: attributes that must be there, and those that may.
ATTRIBUTES = {
    "testsuite": ({"name", "tests", "failures", "errors", "time", "timestamp", "hostname"}, {"skipped"}),
    "properties": (set(), set()),
    "property": ({"name", "value"}, set()),
    "testcase": ({"name", "classname", "time"}, set()),
    "failure": ({"type"}, {"message"}),
    "error": ({"type"}, {"message"}),
    "skipped": (set(), {"type", "message"}),
    "system-out": (set(), set()),
    "system-err": (set(), set()),
}
OUTCOMES = ("failure", "error", "skipped")
# By their names, each with the elements that it may hold, in this order.
CONTENT = {
    "testsuite": r"properties (testcase )*system-out system-err ",
    "properties": r"(property )*",
    "testcase": r"((failure|error|skipped) )?",
}
# Of time: digits in groups of three with commas between them, and xs:decimal, which has none.
SECONDS = re.compile(r"[0-9]+(\.[0-9]*)?")


def breaches(text):
    """Lines that say which rules a document breaks; empty: it keeps them."""
    suite = ElementTree.fromstring(text)
    found = [] if suite.tag == "testsuite" else [f"the root is {suite.tag}"]
    for element in suite.iter():
        needed, allowed = ATTRIBUTES[element.tag]
        given = set(element.keys())
        if not needed <= given <= needed | allowed:
            found.append(f"{element.tag} has {sorted(given)}, not {sorted(needed)}")
        children = "".join(child.tag + " " for child in element)
        if not re.fullmatch(CONTENT.get(element.tag, ""), children):
            found.append(f"{element.tag} holds {children}")
        if "time" in given and not SECONDS.fullmatch(element.get("time")):
            found.append(f"{element.tag} took {element.get('time')}")
        if element.get("name", "x").strip() == "":
            found.append(f"{element.tag} has no name")
    for kind in OUTCOMES:
        counted = suite.get({"failure": "failures", "error": "errors"}.get(kind, kind))
        if int(counted) != len(suite.findall("testcase/" + kind)):
            found.append(f"{counted} of {kind}")
    if int(suite.get("tests")) != len(suite.findall("testcase")):
        found.append("another number of tests")
    if not suite.get("hostname", "").strip():
        found.append("no host")
    try:  # without a zone, and without parts of a second
        datetime.datetime.strptime(suite.get("timestamp", ""), "%Y-%m-%dT%H:%M:%S")
    except ValueError as error:
        found.append(str(error))
    return found
