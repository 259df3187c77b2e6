"""Jobs on a runner of Apache Beam, for the builders and for counting words.

No record passes through Beam: a job reads its parts and writes whole shards, and only a few numbers go on. So on any
runner memory does not grow with the corpus, and because the parts of a job, their order and their randomness are fixed
beforehand, the shards are the same, byte for byte, however Beam bundles, repeats or retries jobs. Each attempt of a job
writes under names of its own; those of the attempts whose results Beam keeps are published.
"""

import dataclasses
import functools
import gc
import logging
import os
import shlex
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.worker import sdk_worker_main
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from model.tokenization import Vocabulary
from pretrain import vocab_learning
from pretrain.build_shards import BuildSettings, write_parts
from pretrain.example_building import Counts
from pretrain.parts import Job, Part, deal
from pretrain.runner import Runner
from pretrain.shard_folder import FAILURE, RESULT
from pretrain.vocab_learning import MAX_WORDS, forget_rare
from util import filesystem
from util.errors import UserError
from util.files import read_json, write_json, write_text, writing
from util.log import say
from util.workers import uninterrupted

COUNTING_JOBS = 256  # at most: each gives its words, all of which are put together
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
Report = Callable[[Counts], None]

# ---------------------------------------------------------------------------------------------------------------------
# Shards


def write_shards(
    settings: BuildSettings, vocabulary: Vocabulary, jobs: Sequence[Job], building: str
) -> tuple[Counts, dict[str, int], dict[str, str]]:
    """Writes the shards of all jobs.

    Returns: the counts; {name of a shard: number of its records}; {name of a shard: its name in the folder `building`}.
    """
    shipped = dataclasses.replace(settings, sources=())  # a job has its own
    work = functools.partial(_write_job, settings=shipped, vocabulary=vocabulary, building=building)
    counts = Counts()
    shards: dict[str, tuple[str, int]] = {}
    for job_counts, job_shards in run_jobs(settings.runner, jobs, work, _joined, building):
        counts.add(Counts(**job_counts))
        shards |= job_shards
    names = sorted(shards, key=lambda name: int(name.split("-")[1]))
    return counts, {name: shards[name][1] for name in names}, {name: shards[name][0] for name in names}


def _write_job(
    job: Job, settings: BuildSettings, vocabulary: Vocabulary, building: str, report: Report
) -> list[tuple[dict, dict]]:
    """Does one job: [(its counts, {name of a shard: (its name in `building`, number of records)})]."""
    attempt = uuid.uuid4().hex
    files = {name: f"{name}.{attempt}" for name in job.shards}
    with ExitStack() as failing:
        failing.callback(_remove, building, files.values())
        counts, records = write_parts(job.parts, tuple(files.values()), building, settings, vocabulary, report)
        failing.pop_all()
    gc.collect()  # the tokenizer of a job refers to itself, and a process does many jobs
    return [(dataclasses.asdict(counts), {name: (file, records[file]) for name, file in files.items()})]


def _remove(folder: str, names: Iterable[str]) -> None:
    """Removes what a job that failed has written: on a full disk, it makes room for saying so."""
    for path in (os.path.join(folder, name) for name in names):
        if filesystem.exists(path):
            filesystem.remove(path)


def _joined(results: Iterable[list]) -> list:
    return [job for result in results for job in result]


# ---------------------------------------------------------------------------------------------------------------------
# Words


def count_words(
    runner: Runner, parts: Sequence[Part], lower: bool, strip_accents: bool, output_file: str
) -> tuple[Counter, Counts]:
    """How often each word occurs in parts of text files, and what was read; it comes back beside `output_file`."""
    jobs = [tuple(hand) for hand in deal(parts, COUNTING_JOBS)]
    work = functools.partial(_count_job, lower=lower, strip_accents=strip_accents)
    folder = f"{output_file}.tmp-{uuid.uuid4().hex}"
    with writing(f"beside {output_file}"):
        filesystem.makedirs(folder)
    try:
        words, counts = run_jobs(runner, jobs, work, _words_together, folder)
    finally:
        with uninterrupted():
            filesystem.rmtree(folder)
    return Counter(words), Counts(**counts)


def _count_job(parts: Sequence[Part], lower: bool, strip_accents: bool, report: Report) -> tuple[dict, dict]:
    words, counts = vocab_learning.count_words(parts, lower, strip_accents, report)
    return dict(words), dataclasses.asdict(counts)


def _words_together(results: Iterable[tuple[dict, dict]]) -> tuple[dict, dict]:
    words: Counter[str] = Counter()
    counts = Counts()
    for job_words, job_counts in results:
        words.update(job_words)
        forget_rare(words, MAX_WORDS)
        counts.add(Counts(**job_counts))
    return dict(words), dataclasses.asdict(counts)


# ---------------------------------------------------------------------------------------------------------------------
# Running


class _OtherFailureError(Exception):
    """A job is not finished because another one has failed."""


class _Work(beam.DoFn):
    """Does jobs. Where a runner does not try again, one that fails stops all (`stop_with_others`); Beam would not."""

    def __init__(self, work: Callable[..., Any], failure: str, stop_with_others: bool):
        self._work, self._failure, self._stop_with_others = work, failure, stop_with_others

    def process(self, job: Any) -> Iterator[Any]:
        with _noted(self._failure):
            yield self._work(job, report=self._look_around)

    def _look_around(self, _: Counts) -> None:
        if self._stop_with_others and filesystem.exists(self._failure):
            raise _OtherFailureError


def _write_result(result: Any, folder: str) -> None:
    with _noted(os.path.join(folder, FAILURE)), writing(f"the result of the jobs in {folder}"):
        write_json(os.path.join(folder, RESULT), result)


@contextmanager
def _noted(failure: str) -> Iterator[None]:
    """Writes down what the user can mend for the process that waits, whatever a runner makes of it."""
    try:
        yield
    except UserError as error:
        write_text(failure, str(error).encode(errors="backslashreplace").decode())  # names of files may be no UTF-8
        raise


def run_jobs(
    runner: Runner, jobs: Sequence[Any], work: Callable[..., Any], merge: Callable[[Iterable[Any]], Any], folder: str
) -> Any:
    """Does jobs on a runner and gives their results as one.

    Args:
      jobs: what `work` is called with, one at a time.
      work: gives what can be written as JSON; calls its argument `report` now and then, which may raise.
      merge: makes one result of several; called again with what it gave.
      folder: where the merged result is written and read; all workers must reach it.
    """
    options = PipelineOptions(list(runner.flags))
    options.view_as(StandardOptions).runner = runner.name
    local = runner.name in StandardOptions.LOCAL_RUNNERS
    # A local runner logs each failure with its traceback, and raises it too; the others tell of the job as it goes.
    logging.getLogger().setLevel(logging.CRITICAL if local else logging.INFO)
    failure, result = os.path.join(folder, FAILURE), os.path.join(folder, RESULT)
    say(f"{len(jobs)} jobs for {runner}; it tells nothing of how far they are")
    try:
        pipeline = beam.Pipeline(_engine(runner.name, options), options)
    except (ValueError, ImportError) as error:
        raise UserError(f"--runner {runner.name}: {' '.join(str(error).split())}") from error
    _ = (
        pipeline
        | "Jobs" >> beam.Create(jobs)
        | "Work" >> beam.ParDo(_Work(work, failure, stop_with_others=local))
        | "Merge" >> beam.CombineGlobally(merge).without_defaults()
        | "Write the result" >> beam.Map(_write_result, folder)
    )
    _run(pipeline, failure)
    if not filesystem.exists(result):
        raise UserError(f"{runner.name} was stopped before all jobs were done")
    return read_json(result, "result of the jobs")


def _engine(name: str, options: PipelineOptions) -> str | FnApiRunner:
    """What runs the pipeline. DirectRunner by itself tries to download a program, Prism, that ignores its options."""
    if name not in ("DirectRunner", "FnApiRunner"):
        return name
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode != "multi_processing":
        return FnApiRunner()
    direct.direct_running_mode = "in_memory"  # or Beam starts workers of its own, that talk much and know no quotes
    code = (
        f"import logging, sys; logging.disable(); sys.path.insert(0, {ROOT!r}); "
        "from pretrain.beam_build import worker; worker()"
    )
    command = f"exec {shlex.join((sys.executable, '-c', code))}"
    return FnApiRunner(SubprocessSDKEnvironment.from_command_string(command))


def worker() -> None:
    """A worker process of the direct runner; what goes wrong in it is told by the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process
    sys.stderr = open(os.devnull, "w")  # Beam prints the traceback of each failure here too
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    sdk_worker_main.main(sys.argv)


def _leave_with(parent: int) -> None:
    """Ends this process when the one that started it is gone: Beam would do all of its jobs first."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _run(pipeline: beam.Pipeline, failure: str) -> None:
    """Runs a pipeline to its end; an interruption, or what a job wrote down, goes before what Beam makes of it."""
    interrupted = False

    def interrupt(*_):
        nonlocal interrupted
        interrupted = True
        write_text(failure, "interrupted")
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    running, ended = None, False
    try:
        running = pipeline.run()
        running.wait_until_finish()
        ended = True
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if interrupted and running is not None:
            running.cancel()
        if interrupted:
            raise KeyboardInterrupt
        if not ended and filesystem.exists(failure):
            with filesystem.open(failure, encoding="utf-8") as file:
                raise UserError(file.read()) from None
