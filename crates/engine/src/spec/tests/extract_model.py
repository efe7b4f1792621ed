"""Writes model.json: the shapes of CreateTrainingJob's request, as botocore's service model has them.

Only facts that decide validity are kept: types, members, limits, patterns, words. Run it with botocore
installed; the tests of the spec compare our own table of limits with its result.
"""

import gzip
import json
import pathlib

import botocore

PLACE = pathlib.Path(botocore.__file__).parent / "data/sagemaker/2017-07-24/service-2.json.gz"
SHAPES = json.loads(gzip.decompress(PLACE.read_bytes()))["shapes"]


def extract(name, found):
    """Adds a shape and all that it refers to."""
    if name in found:
        return
    shape = SHAPES[name]
    kept = {key: shape[key] for key in ("type", "min", "max", "pattern", "enum") if key in shape}
    found[name] = kept
    if shape["type"] == "structure":
        required = shape.get("required", [])
        kept["members"] = [
            {"name": member, "shape": target["shape"], "required": member in required}
            for member, target in shape["members"].items()
        ]
    for part in ("member", "key", "value"):
        if part in shape:
            kept[part] = shape[part]["shape"]
    for target in [kept.get(part) for part in ("member", "key", "value")] + [
        member["shape"] for member in kept.get("members", [])
    ]:
        if target:
            extract(target, found)


shapes = {}
extract("CreateTrainingJobRequest", shapes)
model = {"botocore": botocore.__version__, "shapes": shapes}
pathlib.Path(__file__).with_name("model.json").write_text(json.dumps(model, separators=(",", ":"), indent=None) + "\n")
