"""Makes the input of the packing benchmark: make_input.py large|small FOLDER

large: 16 files of 64 MiB, in turn 512 KiB of random bytes and 512 KiB of words.
small: 200,000 files of 1 KB (half random, half words) in 200 folders.
The same bytes every time.
"""

import pathlib
import random
import sys


def words(generator, length):
    vocabulary = ["".join(generator.choices("etaoinshrdlucmfwyp", k=generator.randint(2, 9))) for _ in range(4000)]
    weights = [1 / rank for rank in range(1, 4001)]
    text = " ".join(generator.choices(vocabulary, weights, k=length // 3)).encode()
    assert len(text) >= length
    return text[:length]


def large(folder):
    generator = random.Random(1)
    stretch = 512 * 1024
    text = words(generator, 32 * stretch)
    for number in range(16):
        with open(folder / f"weights-{number:02}.bin", "wb") as file:
            for place in range(64):
                start = (number * 7 + place) % 32 * stretch
                file.write(generator.randbytes(stretch))
                file.write(text[start:start + stretch])


def small(folder):
    generator = random.Random(2)
    text = words(generator, 1 << 20)
    for number in range(200):
        inner = folder / f"shard-{number:03}"
        inner.mkdir()
        for place in range(1000):
            start = generator.randrange(len(text) - 500)
            (inner / f"row-{place:04}.bin").write_bytes(generator.randbytes(500) + text[start:start + 500])


if __name__ == "__main__":
    kind, name = sys.argv[1:]
    target = pathlib.Path(name)
    target.mkdir(parents=True)
    {"large": large, "small": small}[kind](target)
