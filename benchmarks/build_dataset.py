"""CPU time and memory of the example builder, beside the plain definition of what it does.

The plain definition tokenizes without remembering anything and makes a tf.train.Example of each record, which costs
about what the released code costs. Both read the same text with one process; their records are compared. Times are CPU
seconds without imports and start-up, memory is above what the imports take.
"""

import argparse
import itertools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from model.tokenization import load_vocab, tokenize_by_definition  # noqa: E402
from pretrain.build_shards import DEFAULT_SEED  # noqa: E402
from pretrain.example_building import Counts, Example, ExampleBuilder, Serializer  # noqa: E402
from util.errors import UserError, run_main  # noqa: E402
from util.log import say, table  # noqa: E402

CORPORA = (ROOT / "data" / "corpus_en", ROOT.parent / "shared" / "data" / "corpus_en")
COMMAND = [sys.executable, str(ROOT / "build_pretraining_dataset.py")]
SHARDS = 10
LENGTH = 128


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus-dir", type=Path, default=next((path for path in CORPORA if path.is_dir()), None))
    parser.add_argument("--vocab-file", type=Path, default=ROOT / "tests" / "golden" / "vocab_30522.txt")
    parser.add_argument("--megabytes", type=float, nargs=2, default=[10, 20], help="the two sizes")
    parser.add_argument("--repeats", type=int, default=5, help="runs of the builder; the median counts")
    parser.add_argument("--plain", nargs=2, metavar=("CORPUS", "SHARDS"), help=argparse.SUPPRESS)
    return parser.parse_args()


def run_measured(command: list[str]) -> tuple[float, float, str]:
    """Runs a command: its CPU seconds, its peak memory in MB and what it printed, its own processes included."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, printed


def write_corpus(source: Path, folder: Path, megabytes: float) -> None:
    """Copies the first megabytes of a folder of text, up to the end of a line."""
    room = int(megabytes * 1e6)
    folder.mkdir()
    for path in sorted(source.iterdir()):
        text = path.read_bytes()
        if len(text) > room:
            text = text[: text.rfind(b"\n", 0, room) + 1]
        (folder / path.name).write_bytes(text)
        room -= len(text)
    if room > 1e5:
        raise UserError(f"--corpus-dir {source} holds less than {megabytes} MB; pass other --megabytes")


def plain_record(example: Example, serializer: Serializer) -> bytes:
    """The bytes of an example, made with the classes of TensorFlow."""
    import tensorflow as tf

    ids = serializer.ids(example)
    first = len(example.first) + 2
    padding = [0] * (LENGTH - len(ids))
    features = {
        "input_ids": ids + padding,
        "input_mask": [1] * len(ids) + padding,
        "segment_ids": [0] * first + [1] * (len(ids) - first) + padding,
    }
    features = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=numbers)) for name, numbers in features.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def build_plainly(corpus: Path, output: Path, vocab_file: Path) -> None:
    """The released builder's work with one process, written down as it is defined."""
    import tensorflow as tf

    vocab = load_vocab(str(vocab_file)).ids
    rng = random.Random(DEFAULT_SEED)
    paths = sorted(corpus.iterdir())
    rng.shuffle(paths)
    builder = ExampleBuilder(LENGTH, rng, False, Counts())
    serializer = Serializer(LENGTH, vocab)
    writers = [tf.io.TFRecordWriter(str(output / f"pretrain_data.tfrecord-{i}-of-{SHARDS}")) for i in range(SHARDS)]
    turn = itertools.cycle(writers)
    for path in paths:
        for line in [*path.read_text(encoding="utf-8").split("\n"), ""]:
            if line.strip():
                examples = builder.add_sentence([vocab[piece] for piece in tokenize_by_definition(line, vocab)])
            else:
                examples = builder.end_document()
            for example in examples:
                next(turn).write(plain_record(example, serializer))
    for writer in writers:
        writer.close()


def plain_run(corpus: Path, shards: Path, vocab_file: Path) -> None:
    """What the measured process of the plain definition does: builds, then compares; prints JSON."""
    import tensorflow as tf

    def records(folder: Path):
        for i in range(SHARDS):
            path = str(folder / f"pretrain_data.tfrecord-{i}-of-{SHARDS}")
            for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
                yield tf.train.Example.FromString(record)

    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        build_plainly(corpus, Path(folder), vocab_file)
        seconds = time.process_time() - start
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        number = 0
        for number, (own, plain) in enumerate(zip(records(shards), records(Path(folder)), strict=True), 1):
            if own != plain:
                raise RuntimeError(f"record {number} differs")
    print(json.dumps({"seconds": seconds, "memory": memory, "records": number}))


def run_builder(args: argparse.Namespace, corpus: Path, shards: Path) -> tuple[float, float]:
    """CPU seconds (median of the repeats) and peak memory in MB of the builder, start-up and imports included."""
    command = [*COMMAND, "--corpus-dir", str(corpus), "--vocab-file", str(args.vocab_file), "--overwrite"]
    command += ["--output-dir", str(shards), "--max-seq-length", str(LENGTH), "--num-out-files", str(SHARDS)]
    runs = [run_measured(command) for _ in range(args.repeats)]
    return statistics.median(run[0] for run in runs), max(run[1] for run in runs)


def measure(args: argparse.Namespace, megabytes: float, folder: Path, start_up: tuple[float, float]) -> list[str]:
    """A row of the table: one size of corpus."""
    corpus, shards = folder / f"corpus-{megabytes}", folder / f"shards-{megabytes}"
    write_corpus(args.corpus_dir, corpus, megabytes)
    seconds, memory = run_builder(args, corpus, shards)
    seconds, memory = seconds - start_up[0], memory - start_up[1]
    own = [sys.executable, __file__, "--vocab-file", str(args.vocab_file), "--plain", str(corpus), str(shards)]
    plain = json.loads(run_measured(own)[2].splitlines()[-1])
    return [
        f"{megabytes:g} MB",
        f"{plain['seconds']:.2f} s",
        f"{seconds:.2f} s",
        f"{plain['seconds'] / seconds:.1f}",
        f"{memory:.0f} MB",
        f"{plain['records']}",
    ]


def main() -> int:
    """Measures both sizes and prints the table."""
    args = parse_args()
    if args.plain:
        plain_run(Path(args.plain[0]), Path(args.plain[1]), args.vocab_file)
        return 0
    if args.corpus_dir is None:
        raise UserError("found no text to build from: pass --corpus-dir with 20 MB of text files")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "line").mkdir()
        (folder / "line" / "text").write_text("one line\n")
        imports = run_measured([*COMMAND, "--help"])[1]
        start_up = run_builder(args, folder / "line", folder / "shards")[0]
        say(f"imports and start-up: {start_up:.2f} CPU s (a text of one line), {imports:.0f} MB (--help)")
        rows = [measure(args, megabytes, folder, (start_up, imports)) for megabytes in args.megabytes]
    say(table(["text", "plain definition", "builder", "ratio", "memory above imports", "records, equal"], rows))
    return 0


if __name__ == "__main__":
    run_main(main)
