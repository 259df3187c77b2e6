"""Which devices a run uses, found out and said aloud."""

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from util import filesystem
from util.cluster import Cluster
from util.errors import UserError
from util.files import read_object, write_json, writing
from util.log import say

if TYPE_CHECKING:
    import tensorflow as tf


DEVICES = "devices.json"


@dataclass(frozen=True)
class Devices:
    """The devices of a run."""

    strategy: "tf.distribute.Strategy"
    kind: str  # default, mirrored, multi_worker or tpu
    workers: int  # processes that train together
    worker: int  # which of them this is

    @property
    def replicas(self) -> int:
        """Devices of all workers; each computes its part of the global batch."""
        return self.strategy.num_replicas_in_sync

    @property
    def mine(self) -> range:
        """The numbers of this worker's replicas."""
        here = self.replicas // self.workers
        return range(self.worker * here, (self.worker + 1) * here)

    def check_batch(self, name: str, size: int, pieces: int = 1) -> None:
        """Raises a `UserError` where the hparam of a global batch cannot be shared by replicas and micro-batches."""
        if fault := batch_fault(name, size, self.replicas, pieces):
            raise UserError(fault)

    def wait_for_all(self) -> None:
        """Returns when every worker has come here: what the chief wrote before is there for all of them."""
        if self.workers > 1:
            import tensorflow as tf

            one = self.strategy.run(tf.function(lambda: tf.constant(1.0)))
            self.strategy.reduce(tf.distribute.ReduceOp.SUM, one, axis=None)

    def note(self, folder: str, step: int) -> None:
        """Notes the devices in the folder that is trained in; says what other ones than before change from a step on.

        Data, masks and dropout go by the place of an example in the global batch, so they are the same on any devices.
        """
        path, now = os.path.join(folder, DEVICES), {"workers": self.workers, "replicas": self.replicas}
        if step and filesystem.exists(path) and (before := read_object(path, *now)) != now:
            say(
                f"note: from step {step} on {_count(now['replicas'], 'replica')} on {_count(now['workers'], 'host')}, "
                f"before {_count(before['replicas'], 'replica')} on {_count(before['workers'], 'host')}: the order of "
                "the data, masks and dropout stay the same, but sums are rounded otherwise, so that the weights are no "
                "longer to the bit those of an unchanged run"
            )
        with writing(f"in the folder {folder}"):
            write_json(path, now)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files."""
        return self.worker == 0

    @property
    def on_cpu(self) -> bool:
        """Whether the replicas share this host's CPU and memory."""
        import tensorflow as tf

        return self.kind != "tpu" and not tf.config.list_logical_devices("GPU")

    def free_memory(self) -> float | None:
        """Bytes that each of this worker's replicas can have; None where TensorFlow does not say."""
        return _host_memory("MemAvailable") / len(self.mine) if self.on_cpu else _gpu_memory()

    def whole_memory(self) -> float | None:
        """Bytes that each of this worker's replicas could have if nothing else ran; None where that is not known."""
        return _host_memory("MemTotal", "SwapTotal") / len(self.mine) if self.on_cpu else _gpu_memory()


def batch_fault(name: str, size: int, replicas: int, pieces: int = 1) -> str | None:
    """What is wrong where the hparam of a global batch cannot be shared by replicas and micro-batches."""
    if size % (replicas * pieces) == 0:
        return None
    by = f"{replicas} replicas" + (f" x {pieces} micro-batches" if pieces > 1 else "")
    return f"{name} {size} is not divisible by {by}; take a multiple of {replicas * pieces}"


def _host_memory(*kinds: str) -> float:
    """Bytes of memory of these kinds, as Linux names them; all there is where the system does not say."""
    if os.path.exists("/proc/meminfo"):
        with open("/proc/meminfo", encoding="utf-8") as file:
            return 1024 * sum(float(line.split()[1]) for line in file if line.split(":")[0] in kinds)
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _gpu_memory() -> float | None:
    """The least that TensorFlow may take of a visible GPU; None where it does not say, as for a TPU."""
    import tensorflow as tf

    try:
        with tf.compat.v1.Session(graph=tf.Graph()) as session:  # the public way to a device's limit
            limits = [device.memory_limit_bytes for device in session.list_devices() if device.device_type == "GPU"]
    except tf.errors.OpError:  # a run that would fit must not end for an estimate
        return None
    return min(limits, default=None)


def read_cluster() -> dict[str, Any] | None:
    """The cluster that TF_CONFIG describes, None without one; needs no TensorFlow.

    Returns:
      {"workers": addresses, "index": of this worker}.

    Raises:
      UserError: TF_CONFIG is malformed.
    """
    text = os.environ.get("TF_CONFIG")
    if not text:
        return None
    example = '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UserError(f"TF_CONFIG is not valid JSON ({error}); expected e.g. {example}") from error
    if not isinstance(value, dict):
        raise UserError(f"TF_CONFIG is not a JSON object; expected e.g. {example}")
    cluster, task = value.get("cluster"), value.get("task")
    if not cluster:
        return None
    if isinstance(cluster, dict) and set(cluster) - {"worker"}:
        raise UserError(
            f"TF_CONFIG has {', '.join(sorted(set(cluster) - {'worker'}))}; only workers are known: expected e.g. "
            f"{example}, or no TF_CONFIG to train on this host alone"
        )
    workers = cluster.get("worker") if isinstance(cluster, dict) else None
    if not isinstance(workers, list) or not all(isinstance(w, str) and ":" in w for w in workers) or not workers:
        raise UserError(f"TF_CONFIG names no workers as host:port; expected e.g. {example}")
    if wrong := [w for w in workers if not w.rpartition(":")[2].isdecimal() or int(w.rpartition(":")[2]) > 65535]:
        raise UserError(f"TF_CONFIG: the port of {wrong[0]} is no number up to 65535; expected e.g. {example}")
    if len(set(workers)) != len(workers):
        raise UserError("TF_CONFIG names the same address twice: " + ", ".join(workers))
    kind, index = (task.get("type"), task.get("index")) if isinstance(task, dict) else (None, None)
    if kind != "worker" or type(index) is not int or not 0 <= index < len(workers):
        raise UserError(
            f"TF_CONFIG's task must be a worker with an index from 0 to {len(workers) - 1}; got "
            f"{json.dumps(task)}; expected e.g. {example}"
        )
    return {"workers": workers, "index": index}


def choose(config: Any) -> str:
    """The kind of strategy that the hparams and TF_CONFIG ask for; "auto" is left to the visible GPUs."""
    cluster = read_cluster()
    if config.use_tpu or config.distribution == "tpu":
        return "tpu"
    if config.distribution == "multi_worker" and cluster is None:
        raise UserError('distribution "multi_worker" needs TF_CONFIG in the environment; see the README')
    if config.distribution == "auto" and cluster is not None and len(cluster["workers"]) > 1:
        return "multi_worker"
    return config.distribution


def open_devices(config: Any, cluster: Cluster) -> Devices:
    """Makes the tf.distribute strategy and says which devices it uses. Call it before anything else of TensorFlow.

    Args:
      config: use_tpu, tpu_name, tpu_zone, gcp_project, distribution, logical_cpus, require_gpu, gpu_memory_growth
        and deterministic are read.
      cluster: the workers that train together.

    Raises:
      UserError: a TPU or GPU that is asked for is not there, or workers have other numbers of them.
    """
    import tensorflow as tf

    kind = choose(config)
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, config.gpu_memory_growth)
    if config.require_gpu and not gpus:
        raise UserError("require_gpu is true and no GPU is visible; check the driver and CUDA_VISIBLE_DEVICES")
    if config.logical_cpus > 1:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * config.logical_cpus
        )
    if kind == "auto":
        kind = "mirrored" if len(gpus) > 1 or config.logical_cpus > 1 else "default"
    cluster.agree({"visible GPUs": len(gpus)})  # and all are here, since TensorFlow would wait for them for ever
    cluster.loaded()
    strategy = _tpu_strategy(tf, config) if kind == "tpu" else _strategy(tf, kind, bool(gpus))
    devices = Devices(strategy, kind, len(cluster.workers), cluster.index)
    _say_devices(tf, devices)
    return devices


def _strategy(tf: Any, kind: str, has_gpus: bool) -> "tf.distribute.Strategy":
    if kind == "multi_worker":
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.NCCL
            if has_gpus
            else tf.distribute.experimental.CommunicationImplementation.RING
        )
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    if kind == "mirrored":
        devices = (
            None
            if has_gpus
            else [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices("CPU")]
        )
        return tf.distribute.MirroredStrategy(devices)
    return tf.distribute.get_strategy()


def _tpu_strategy(tf: Any, config: Any) -> "tf.distribute.Strategy":
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            config.tpu_name, zone=config.tpu_zone, project=config.gcp_project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, RuntimeError, OSError, ImportError, tf.errors.OpError) as error:
        raise UserError(
            f"use_tpu is true and no TPU was found ({str(error).splitlines()[0]}); on a TPU VM leave tpu_name "
            'null or set it to "local", elsewhere give its name and zone; or set use_tpu false'
        ) from error


def _say_devices(tf: Any, devices: Devices) -> None:
    names = list(
        dict.fromkeys(  # those of all hosts are listed, which have the same
            f"{device.device_type}:{device.name.rsplit(':', 1)[1]}"
            for device in tf.config.list_logical_devices()
            if device.device_type in ("CPU", "GPU", "TPU")
        )
    )
    used = [name for name in names if not name.startswith("CPU")] or names
    cores = f" with {os.cpu_count()} cores" if used == names else ""
    worker = f"; this is worker {devices.worker}" if devices.workers > 1 else ""
    say(
        f"devices: {_count(devices.replicas, 'replica')} on {_count(devices.workers, 'host')}, strategy "
        f"{devices.kind}; this host uses {', '.join(used)}{cores}{worker}"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
