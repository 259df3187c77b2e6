"""--runner and --beam-options: which engine of Apache Beam runs the jobs of a command. Beam itself is an extra."""

import argparse
import contextlib
import dataclasses
import importlib.util
import io
import logging
import shlex

from util.errors import UserError, nearest_hint

INSTALL_BEAM = "pip install -r requirements-beam.txt"


@dataclasses.dataclass(frozen=True)
class Runner:
    """A runner by its name, and the flags of Beam that it is to have."""

    name: str
    flags: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.name, *self.flags))


def add_runner_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of every command whose work Apache Beam can deal out."""
    parser.add_argument(
        "--runner", help="deal the work out by Apache Beam: DirectRunner, DataflowRunner, FlinkRunner, SparkRunner, ..."
    )
    parser.add_argument(
        "--beam-options", metavar="TEXT", help='of the runner, in one text: --beam-options="--direct_num_workers 2"'
    )


def chosen_runner(args: argparse.Namespace) -> Runner | None:
    """The runner that flags name, None for processes of this machine; a `UserError` where Beam cannot have it so."""
    if args.runner is None:
        if args.beam_options is not None:
            raise UserError("--beam-options says how a --runner works; pass --runner too")
        return None
    if importlib.util.find_spec("apache_beam") is None:
        raise UserError(f"--runner {args.runner} needs Apache Beam, which is not installed: {INSTALL_BEAM}")
    if args.num_processes != 1:
        raise UserError(
            f"--num-processes {args.num_processes} and --runner exclude each other; with DirectRunner: --beam-options "
            f'"--direct_num_workers {args.num_processes} --direct_running_mode multi_processing"'
        )
    logging.getLogger().setLevel(logging.ERROR)  # Beam warns of every extra that is not installed
    _check_name(args.runner)
    try:
        flags = shlex.split(args.beam_options or "")
    except ValueError as error:
        raise UserError(f"--beam-options {args.beam_options!r}: {error}") from error
    _check_flags(flags)
    return Runner(args.runner, tuple(flags))


def _check_name(name: str) -> None:
    from apache_beam.options.pipeline_options import StandardOptions

    known = [known for known in StandardOptions.KNOWN_RUNNER_NAMES if not known.startswith("Test")]
    if name not in known:
        raise UserError(f"unknown --runner {name}{nearest_hint(name, known)}; Apache Beam knows {', '.join(known)}")


def _check_flags(flags: list[str]) -> None:
    """A `UserError` names what Beam would only warn of, or answer with the list of all its options."""
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    parsers: list[argparse.ArgumentParser] = []
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options = PipelineOptions(flags)
            known = options.get_all_options(add_extra_args_fn=parsers.append)
            _, unknown = parsers[0].parse_known_args(flags)
    except SystemExit as error:
        reason = said.getvalue().strip().splitlines()[-1].partition("error: ")[2]
        raise UserError(f"--beam-options: {reason}") from error
    if unknown:
        name = unknown[0].split("=")[0]
        hint = nearest_hint(name, [f"--{option}" for option in known])
        raise UserError(f"--beam-options: Apache Beam knows no {name}{hint}")
    if options.view_as(StandardOptions).runner is not None:
        raise UserError("--beam-options names a runner: leave it to --runner")
