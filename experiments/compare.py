"""Pre-trains objectives at equal training FLOPs, fine-tunes each on tasks, and writes a table and a plot.

    python -m experiments.compare CONFIG.json [--data-dir DATA] [--dry-run]

The same command again goes on where it stopped. docs/experiments.md says what CONFIG.json holds.
"""

import argparse
import json
import os
import sys

from experiments import checks
from experiments.commands import Commands, Stopped
from experiments.configuration import Experiment, read_experiment
from experiments.plot import draw
from experiments.results import row_of, write_results
from experiments.runs import Run
from util import filesystem
from util.errors import run_main
from util.files import check_writable
from util.folder_lock import FolderLock
from util.log import heading, say, table


class Report:
    """The results so far, written anew after each part."""

    def __init__(self, experiment: Experiment):
        self.experiment = experiment
        self.judged = {task.name: checks.judged_by(task) for task in experiment.runs[0].tasks}
        self.entropy = checks.unigram_entropy(experiment)

    def write(self) -> None:
        """Writes results.json, results.md and scores.png into the experiment's folder."""
        rows = [row_of(run, self.judged, self.entropy) for run in self.experiment.runs]
        write_results(self.experiment.folder, self.experiment.name, self.entropy, rows)
        draw(self.experiment.folder, rows)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", metavar="CONFIG.json", help="what is compared")
    parser.add_argument("--data-dir", help="the data folder, in place of the configuration's")
    parser.add_argument("--dry-run", action="store_true", help="check everything, say what would run, and leave")
    return parser.parse_args()


def main() -> int:
    """Checks, runs what is not finished, and writes the results after each part."""
    arguments = parse_arguments()
    experiment = read_experiment(arguments.config, arguments.data_dir)
    checks.check_data(experiment)
    say_plan(experiment)
    if arguments.dry_run:
        return 0
    check_writable(experiment.folder)
    with FolderLock(experiment.folder), Commands() as commands:
        checks.check_kept(experiment)
        report = Report(experiment)
        try:
            for number, run in enumerate(experiment.runs, start=1):
                heading(f"{number} of {len(experiment.runs)}: {run.title}")
                go_through(run, commands, report)
        except Stopped as stop:
            say(f"stopped; the same command goes on from there. Results so far: {experiment.folder}")
            return stop.code
        finally:
            report.write()
    with filesystem.open(os.path.join(experiment.folder, "results.md"), encoding="utf-8") as file:
        say("\n" + file.read())
    say(f"written: results.md, results.json and scores.png in {experiment.folder}")
    return say_failures(commands)


def say_plan(experiment: Experiment) -> None:
    """Prints the runs with their steps and FLOPs."""
    heading(f"experiment {experiment.name}")
    rows = [[run.objective, f"{run.budget:g}", f"{run.config.num_train_steps:,}", f"{run.flops:.5g}"]
            for run in experiment.runs]  # fmt: skip
    say(table(["objective", "budget", "steps", "FLOPs"], rows))
    say(f"then {experiment.values['seeds']} seeds of each of: {', '.join(experiment.values['tasks'])}")


def go_through(run: Run, commands: Commands, report: Report) -> None:
    """Pre-trains and fine-tunes what is not finished; the tasks of a model that failed are left out."""
    where = ("--data-dir", run.config.data_dir, "--model-name", run.config.model_name, "--hparams")
    if run.pretrained():
        say(f"pre-trained already: {run.config.model_dir}")
    else:
        commands.wait_until_free(run.config.model_dir)
        title = f"pre-training of {run.title}"
        if not commands.run(title, run.pretrained, "run_pretraining.py", *where, json.dumps(run.hparams)):
            return
        report.write()
    for task in run.tasks:
        if task.finished():
            say(f"fine-tuned already on {task.name}, n = {task.config.num_trials}")
            continue
        heading(f"{run.title}: {task.name}")
        commands.wait_until_free(task.unfinished())
        title = f"fine-tuning of {run.title} on {task.name}"
        commands.run(title, task.finished, "run_finetuning.py", *where, json.dumps(task.hparams))
        report.write()


def say_failures(commands: Commands) -> int:
    """Repeats on stderr what failed; gives the exit code."""
    for failure in commands.failures:
        print(f"error: {failure}", file=sys.stderr, flush=True)
    return 1 if commands.failures else 0


if __name__ == "__main__":
    run_main(main)
