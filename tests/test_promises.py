"""docs/CONTRACT.md and the tests behind it name each other."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
CONTRACT = TESTS.parent / "docs/CONTRACT.md"
ROW = re.compile(r"^\| (?P<id>[A-Z]+\d+) \| (?P<promise>.+) \| (?P<tests>`.+`) \|$", re.MULTILINE)

MODULES_OF_PROMISES = (
    "test_api",
    "test_artifact",
    "test_channels",
    "test_api_cloudwatch",
    "test_api_limits",
    "test_api_members",
    "test_api_model",
    "test_check",
    "test_cli_amazon",
    "test_cli_artifact",
    "test_cli_client",
    "test_cli_notices",
    "test_cli_top",
    "test_config",
    "test_config_files",
    "test_crash",
    "test_docker",
    "test_doctor",
    "test_export",
    "test_hostile",
    "test_ids",
    "test_images",
    "test_instance",
    "test_life",
    "test_logs",
    "test_modes_fast",
    "test_modes_groups",
    "test_modes_pipe",
    "test_modes_sources",
    "test_modes_stores",
    "test_modes_users",
    "test_network",
    "test_noise",
    "test_resources",
    "test_s3",
    "test_s3_door",
    "test_s3_listing",
    "test_s3_multipart",
    "test_s3_objects",
    "test_sdk",
    "test_static",
)
"""Every test in these checks something that docs/CONTRACT.md promises."""


def named_tests():
    rows = list(ROW.finditer(CONTRACT.read_text()))
    return [(row["id"], test) for row in rows for test in re.findall(r"`([^`]+)`", row["tests"])]


def existing_tests(module):
    tree = ast.parse((TESTS / f"{module}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_promise_names_a_test_that_exists():
    missing = []
    for promise, name in named_tests():
        module, _, test = name.partition("::")
        if not (TESTS / f"{module}.py").exists() or test not in existing_tests(module):
            missing.append(f"{promise}: {name}")
    assert missing == []


def test_every_row_of_the_contract_is_a_promise_with_a_test():
    rows = [line for line in CONTRACT.read_text().splitlines() if re.match(r"^\| [A-Z]+\d+ \|", line)]
    assert len(rows) == len(list(ROW.finditer(CONTRACT.read_text()))) > 50


def test_no_two_promises_share_their_id():
    ids = [row["id"] for row in ROW.finditer(CONTRACT.read_text())]
    assert sorted(ids) == sorted(set(ids))


def test_every_test_of_the_contract_backs_a_promise():
    named = {name for _, name in named_tests()}
    existing = {f"{module}::{test}" for module in MODULES_OF_PROMISES for test in existing_tests(module)}
    assert sorted(existing - named) == []
