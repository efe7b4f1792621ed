"""The endpoint under random requests: nothing that a client sends is an error of the server, let alone its end.

TRAINYARD_NOISE says how many requests, TRAINYARD_NOISE_SEED which.
"""

import os
import time

import noise
import pytest
from endpoint import Endpoint

pytestmark = pytest.mark.one_user

COUNT = int(os.environ.get("TRAINYARD_NOISE", "50000"))
SEED = int(os.environ.get("TRAINYARD_NOISE_SEED", str(time.time_ns() % 1_000_000)))


def test_random_requests_are_answered_without_an_error_of_the_server(yard):
    # On a machine that is fast enough it would be told to slow down, as it should.
    endpoint = Endpoint(yard, "--max-instances", "1", "--max-request-rate", "1000000")
    endpoint.client().create_bucket(Bucket="noise-bucket")
    keys = (endpoint.variables["AWS_ACCESS_KEY_ID"], endpoint.variables["AWS_SECRET_ACCESS_KEY"])
    begun = time.monotonic()
    seen, wrong = noise.make(endpoint.url, keys, COUNT, SEED)
    took = time.monotonic() - begun
    print(f"seed {SEED}: {COUNT} requests in {took:.0f} s: {dict(sorted(seen.items(), key=str))}")
    assert not wrong, f"seed {SEED}: " + "\n\n".join(map(str, wrong[:5]))
    assert endpoint.running.process.poll() is None, "it has ended"
    assert sum(seen.values()) == COUNT // 8 * 8
    # Enough of them are carried out, and a connection is given up only after nonsense.
    assert seen.get(200, 0) > COUNT / 20 and seen.get(400, 0) > COUNT / 10, seen
    assert seen["unanswered"] < COUNT / 10, seen
    endpoint.client("sagemaker").list_training_jobs()
    # Panics are looked for there.
    endpoint.stop()
