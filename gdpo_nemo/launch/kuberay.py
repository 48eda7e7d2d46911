"""Kubernetes: a KubeRay ``RayJob`` with the run's configuration in a ConfigMap, and its submission.

Follows NeMo RL's docs/cluster.md and infra/examples/rayjob-monolithic.yaml (v0.7.0): a head and workers with all GPUs
of their nodes, a volume that all pods share, the job submitted over HTTP. The head has GPUs of its own and counts as a
node. When the job fails, KubeRay starts a new cluster up to ``retries`` times, and training resumes at the newest
checkpoint. NeMo RL hands the environment of its driver on to all of its processes.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from gdpo_nemo.errors import PrerequisiteError, UsageError
from gdpo_nemo.launch.job import IN_IMAGE, MODULE, TrainingJob, missing_options
from gdpo_nemo.launch.options import option
from gdpo_nemo.launch.scheduler import SubmissionError

ENDED = ("Complete", "Failed")
CONFIG_MOUNT = "/etc/gdpo"
NAME_LENGTH = 40  # KubeRay adds suffixes, and a name of Kubernetes ends at 63
REQUIRED = {
    "image": "IMAGE: of NeMo RL v0.7.0 with this package in it (docker/Dockerfile), in a registry that the pods reach",
    "claim": "NAME: of a ReadWriteMany PersistentVolumeClaim (kubectl get pvc)",
}


@dataclass(frozen=True)
class KubeRayOptions:
    """What a RayJob needs beside the run's configuration."""

    image: str = option("", "image of NeMo RL with this package", "IMAGE")
    claim: str = option("", "PersistentVolumeClaim that all pods share", "NAME")
    shared: str = option("/shared", "where the pods mount it; runs go below", "DIR")
    code: str = option("/opt/nemo-rl", "NeMo RL's code inside the image", "DIR")
    package: str = option(IN_IMAGE, "this package on the shared volume (default -: in the image)", "DIR")
    namespace: str = option("default", "namespace of the job", "NAME")
    pull_secret: str = option("", "secret that pulls the image", "NAME")
    env_secret: str = option("", "secret with HF_TOKEN, WANDB_API_KEY and the like, for the environment", "NAME")
    export: tuple[str, ...] = option((), "environment variable of the pods", "NAME=VALUE")
    cpu: int = option(128, "CPUs of each pod", "N")
    memory: str = option("1500Gi", "memory of each pod", "SIZE")
    shm: str = option("1000Gi", "shared memory of each pod, which counts as the node's memory", "SIZE")
    interface: str = option("", "network interface for NCCL, e.g. bond0 (default: NCCL decides)", "NAME")
    host_network: bool = option(True, "give the pods the pod network, not the node's")
    ray_version: str = option("2.55.1", "Ray in the image, as in NeMo RL's uv.lock", "VERSION")
    retries: int = option(3, "further clusters when a job fails; training resumes in each", "N")
    ttl_s: int = option(3600, "seconds for which the finished job stays visible", "N")

    def check(self) -> None:
        """Complete.

        Raises:
            UsageError: an option is missing; the message says what it is.
        """
        missing = {name: what for name, what in REQUIRED.items() if not getattr(self, name)}
        if missing:
            raise missing_options("kuberay", missing)
        for assignment in self.export:
            if "=" not in assignment:
                raise UsageError(f"--export {assignment!r} is not of the form NAME=VALUE")

    def seen_as(self, run: Path, out: Path) -> Path:
        """A run directory as the pods see it: itself on the shared volume, else the same place in its ``runs``."""
        run = run.resolve()
        return run if run.is_relative_to(self.shared) else Path(self.shared, "runs", run.relative_to(out.resolve()))


def object_name(job: TrainingJob) -> str:
    """A name that Kubernetes takes, one for each run directory."""
    if len(job.slug) <= NAME_LENGTH:
        return job.slug
    return f"{job.slug[: NAME_LENGTH - 9].strip('-')}-{hashlib.sha256(job.slug.encode()).hexdigest()[:8]}"


def render(job: TrainingJob, options: KubeRayOptions) -> str:
    """The manifest: a ConfigMap and the RayJob that reads it.

    Raises:
        UsageError: an option is missing, or the run does not lie on the shared volume.
    """
    options.check()
    shared = PurePosixPath(options.shared)
    if not PurePosixPath(job.checkpoint_dir).is_relative_to(shared):
        raise UsageError(
            f"checkpointing.checkpoint_dir {job.checkpoint_dir} is not below {shared}, where the pods mount the shared "
            "volume; they would lose it"
        )
    name = object_name(job)
    labels = {"app.kubernetes.io/name": "gdpo-nemo", "gdpo/experiment": job.experiment, "gdpo/arm": job.arm}
    metadata = {"name": name, "namespace": options.namespace, "labels": labels | {"gdpo/seed": str(job.seed)}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": job.text}}
    ray_job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": metadata,
        "spec": {
            "entrypoint": _entrypoint(options),
            "submissionMode": "HTTPMode",
            "backoffLimit": options.retries,
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": options.ttl_s,
            "rayClusterSpec": _cluster(name, job, options),
        },
    }
    about = f"# {job.experiment}: {job.name}, {job.model} on {job.nodes} x {job.gpus_per_node} GPUs.\n"
    return about + yaml.dump_all([config, ray_job], Dumper=_Readable, sort_keys=False, width=120)


def _entrypoint(options: KubeRayOptions) -> str:
    own = [] if options.package == IN_IMAGE else [options.package]
    path = ":".join([*own, options.code])
    script = (
        f"cd {shlex.quote(options.code)} && "
        f"export NEMO_RL_PATH={shlex.quote(options.code)} "
        f"PYTHONPATH={shlex.quote(path)}${{PYTHONPATH:+:$PYTHONPATH}} && "
        f"exec uv run python -m {MODULE} --config {CONFIG_MOUNT}/config.yaml"
    )
    return f"bash -c {shlex.quote(script)}"


def _cluster(name: str, job: TrainingJob, options: KubeRayOptions) -> dict[str, Any]:
    gpus = str(job.gpus_per_node)
    spec: dict[str, Any] = {
        "rayVersion": options.ray_version,
        "headGroupSpec": {
            "rayStartParams": {"dashboard-host": "0.0.0.0", "num-gpus": gpus},
            "template": {"spec": _pod("ray-head", name, job, options)},
        },
    }
    if job.nodes > 1:
        workers = job.nodes - 1
        spec["workerGroupSpecs"] = [
            {
                "groupName": "gpus",
                "replicas": workers,
                "minReplicas": workers,
                "maxReplicas": workers,
                "rayStartParams": {"num-gpus": gpus},
                "template": {"spec": _pod("ray-worker", name, job, options)},
            }
        ]
    return spec


def _pod(container: str, name: str, job: TrainingJob, options: KubeRayOptions) -> dict[str, Any]:
    resources = {"nvidia.com/gpu": job.gpus_per_node, "cpu": str(options.cpu), "memory": options.memory}
    variables = {
        "RAY_memory_monitor_refresh_ms": "0",
        "HF_HOME": f"{options.shared}/huggingface",
        **({"NCCL_SOCKET_IFNAME": options.interface} if options.interface else {}),
        **dict(assignment.split("=", 1) for assignment in options.export),
    }
    spec: dict[str, Any] = {
        "affinity": {
            "podAntiAffinity": {  # one pod per node
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {
                            "matchExpressions": [
                                {"key": "ray.io/node-type", "operator": "In", "values": ["worker", "head"]}
                            ]
                        },
                        "topologyKey": "kubernetes.io/hostname",
                    }
                ]
            }
        },
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [
            {
                "name": container,
                "image": options.image,
                "resources": {"limits": dict(resources), "requests": dict(resources)},
                "env": [{"name": key, "value": value} for key, value in variables.items()],
                **({"envFrom": [{"secretRef": {"name": options.env_secret}}]} if options.env_secret else {}),
                "volumeMounts": [
                    {"name": "shared", "mountPath": options.shared},
                    {"name": "config", "mountPath": CONFIG_MOUNT},
                    {"name": "shm", "mountPath": "/dev/shm"},
                ],
            }
        ],
        "volumes": [
            {"name": "shared", "persistentVolumeClaim": {"claimName": options.claim}},
            {"name": "config", "configMap": {"name": name}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": options.shm}},
        ],
    }
    if options.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if options.pull_secret:
        spec["imagePullSecrets"] = [{"name": options.pull_secret}]
    return spec


class _Readable(yaml.SafeDumper):
    """Block style for texts of several lines; no anchors for what occurs twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _text)


def state(job: TrainingJob, options: KubeRayOptions) -> str:
    """KubeRay's word for the run's RayJob, such as Running, Complete or Failed; empty: there is none."""
    found = [*("get", "rayjob", object_name(job)), "--ignore-not-found", "-o", "jsonpath={.status.jobDeploymentStatus}"]
    return _kubectl(*found, "-n", options.namespace)


def submit(job: TrainingJob, manifest: Path, options: KubeRayOptions) -> str:
    """``kubectl apply``; its own words about what it created. A RayJob that ended is removed before: it runs once.

    Raises:
        SubmissionError: kubectl refused.
    """
    if state(job, options) in ENDED:
        _kubectl("delete", "rayjob", object_name(job), "-n", options.namespace)
    return _kubectl("apply", "-f", str(manifest))


def check_client() -> None:
    """Refuse to go on without kubectl.

    Raises:
        PrerequisiteError: it is not there.
    """
    if shutil.which("kubectl") is None:
        raise PrerequisiteError(
            "kubectl was not found: install it and give it access to the cluster; --dry-run only writes the manifest"
        )


def _kubectl(*arguments: str) -> str:
    command = ["kubectl", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SubmissionError(f"{shlex.join(command)} ended with code {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()
