"""Amazon's model of CreateTrainingJob: every place of a request, and values for it.

The model is the extract of botocore's that the engine's own tests use, so that a newer botocore changes nothing here.
"""

import copy
import json
import re
from pathlib import Path

EXTRACT = json.loads(
    (Path(__file__).parent.parent / "crates/engine/src/spec/tests/model.json").read_text()
)


class Shape:
    """What may stand in a place."""

    def __init__(self, name):
        found = EXTRACT["shapes"][name]
        self.name = name
        self.limits = found
        self.type_name = found["type"]
        self.enum = found.get("enum", [])
        members = found.get("members", [])
        self.members = {member["name"]: Shape(member["shape"]) for member in members}
        self.required_members = [member["name"] for member in members if member["required"]]
        for part in ("member", "key", "value"):
            setattr(self, part, Shape(found[part]) if part in found else None)


REQUEST = Shape("CreateTrainingJobRequest")

# The first that a pattern takes is its sample.
CANDIDATES = [
    "a", "job", "1", "s3://bucket/data/", "arn:aws:iam::000000000000:role/any", "fs-01234567890", "A1", "1K",
    "arn:aws:lambda:us-east-1:000000000000:function:any",
    "arn:aws:sagemaker:us-east-1:000000000000:training-plan/any",
    "arn:aws:sagemaker:us-east-1:000000000000:hub-content/hub/Model/any",
    "arn:aws:sagemaker:us-east-1:000000000000:hub-content/hub/Model/any/1.0.0",
    "arn:aws:sagemaker:us-east-1:000000000000:hub-content/hub/DataSet/any/1.0.0",
    "arn:aws:sagemaker:us-east-1:000000000000:hub-content/hub/JsonDoc/any/1.0.0",
    "arn:aws:sagemaker:us-east-1:000000000000:model-package-group/any",
    "arn:aws:sagemaker:us-east-1:000000000000:model-package/any/1",
    "arn:aws:sagemaker:us-east-1:000000000000:mlflow-app/any",
    "arn:aws:sagemaker:us-east-1:000000000000:mlflow-tracking-server/any",
]
PAD = ["a", "0", "/a", "A"]


def limit(shape, name):
    return shape.limits.get(name)


def fits(shape, text):
    pattern = limit(shape, "pattern")
    return pattern is None or re.fullmatch(plain(pattern), text) is not None


def plain(pattern):
    """A pattern as Python reads it; of letters, digits and blanks of all scripts those of samples are enough."""
    kinds = {"L": r"\w", "N": "0-9", "Z": " ", "M": "", "S": "$", "P": "!"}
    return re.sub(r"\\p\{(\w)\w*\}", lambda found: kinds.get(found[1], r"\w"), pattern)


def text_of(shape, length=None):
    """A text that the pattern takes, of a length if one is asked for; none if there is none among those tried."""
    least = limit(shape, "min") or 0
    for candidate in CANDIDATES:
        for pad in PAD:
            wanted = max(least, len(candidate)) if length is None else length
            text = candidate
            while len(text) < wanted:
                text += pad
            if len(text) == wanted and fits(shape, text):
                return text
    return "" if length == 0 and fits(shape, "") else None


def sample(shape):
    """The smallest valid value."""
    kind = shape.type_name
    if kind == "structure":
        return {name: sample(shape.members[name]) for name in shape.required_members}
    if kind == "list":
        return [sample(shape.member) for _ in range(limit(shape, "min") or 1)]
    if kind == "map":
        return {sample(shape.key): sample(shape.value)}
    if kind == "string":
        found = shape.enum[0] if shape.enum else text_of(shape)
        assert found is not None, f"no sample of {shape.name}: {limit(shape, 'pattern')}"
        return found
    return True if kind == "boolean" else limit(shape, "min") or 1


# In place of a value: the member is not there.
LEFT_OUT = object()


class Slot:
    """A place in a request: the names of its members, `*` for the first element, and what may stand there."""

    def __init__(self, path, shapes):
        self.path = path
        self.shape = shapes[-1]
        self.shapes = shapes

    def members(self):
        return ".".join(step for step in self.path if step != "*")

    def in_messages(self):
        return ".".join("1.member" if step == "*" else step[0].lower() + step[1:] for step in self.path)

    def put(self, request, value):
        """A copy of the request with a value in this place, and what its neighbours need to be there."""
        request = copy.deepcopy(request)
        at = request
        for step, shape, last in zip(self.path, self.shapes, [False] * (len(self.path) - 1) + [True], strict=False):
            if value is LEFT_OUT and last:
                at.pop(step, None)
            elif last and step == "*":
                at[0:1] = [value]
            elif last:
                at[step] = value
            elif step == "*":
                at = at[0]
            else:
                at = at.setdefault(step, sample(shape.members[step]))
        return request


def slots(shape=REQUEST, path=(), shapes=None):
    """Every place, outer ones first."""
    shapes = shapes or [shape]
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            slot = Slot((*path, name), [*shapes, member])
            yield slot
            yield from slots(member, slot.path, slot.shapes)
    elif shape.type_name == "list":
        slot = Slot((*path, "*"), [*shapes, shape.member])
        yield slot
        yield from slots(shape.member, slot.path, slot.shapes)
