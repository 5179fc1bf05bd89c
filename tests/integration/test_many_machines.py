"""The examples for Slurm and Kubernetes: the script with stand-ins for Slurm's commands, and the manifest."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import typer
import yaml
from torch.distributed.run import get_args_parser

from jointnmt.cli.main import app
from jointnmt.runs.directory import RunDirectory
from support.machines import SECONDS, trained_to
from support.tiny import tiny_recipe, write_corpus

EXAMPLES = Path(__file__).parents[2] / "examples"

SLURM = {
    "scontrol": 'case $1 in show) echo 127.0.0.1 ;; requeue) echo "$2" >> requeued ;; esac',
    "srun": 'echo $$ > step; exec "$@"',
    "scancel": '[ "$*" = "--signal=TERM 7" ] && kill -TERM $(cat step)',
}
"""Stand-ins for the Slurm commands of the script, on one machine: a step is one process; `step` has its number."""


def submit(folder: Path, run: Path) -> subprocess.Popen[str]:
    """Run the script as job 7; it is warned by SIGUSR1."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, body in SLURM.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    script = (EXAMPLES / "train_on_slurm.sh").read_text(encoding="utf-8").replace(":29500", f":{port}")
    (folder / "job.sh").write_text(script, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    environment |= {"SLURM_JOB_ID": "7", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "here", "SLURM_GPUS_ON_NODE": "2"}
    environment["PATH"] = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", "job.sh", "recipe.yaml", "--out", str(run)]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def test_a_job_of_slurm_is_queued_again_until_it_is_done(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    recipe = tiny_recipe(tmp_path)
    recipe["training"]["max_updates"] = 40
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    run, requeued = tmp_path / "run", tmp_path / "requeued"
    job, deadline = submit(tmp_path, run), time.monotonic() + SECONDS
    while not trained_to(run, 2)():
        assert job.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    job.send_signal(signal.SIGUSR1)
    _, said = job.communicate(timeout=SECONDS)
    step = RunDirectory(run).states.newest_step()
    assert job.returncode != 0 and requeued.read_text() == "7\n", said
    assert f"stopped after update {step}, saved" in said and step < 40
    job = submit(tmp_path, run)
    _, said = job.communicate(timeout=SECONDS)
    assert job.returncode == 0 and requeued.read_text() == "7\n", said
    log = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    steps = [each["step"] for each in log if each["event"] == "train"]
    assert steps == sorted(set(steps)) and steps[0] <= step and steps[-1] == 40  # the second job resumed the first


def test_the_manifest_of_kubernetes_fits_together() -> None:
    service, job = yaml.safe_load_all((EXAMPLES / "train_on_kubernetes.yaml").read_text(encoding="utf-8"))
    name, pod = job["metadata"]["name"], job["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"] == {"job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"] and pod["terminationGracePeriodSeconds"] > 30
    [container] = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    program, *arguments = container["command"]
    given = get_args_parser().parse_args(arguments)
    assert program == "torchrun" and given.module and given.training_script == "jointnmt"
    assert given.rdzv_endpoint.startswith(f"{name}-0.{service['metadata']['name']}:")
    assert given.nnodes == f"1:{job['spec']['parallelism']}" == f"1:{job['spec']['completions']}"
    assert given.nproc_per_node == str(container["resources"]["limits"]["nvidia.com/gpu"])
    assert {"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"} in container["env"]
    command, *options = given.training_script_args
    group: Any = typer.main.get_command(app)
    train = group.resolve_command(group.context_class(group, info_name="jointnmt"), [command])[1]
    values = train.make_context(command, options).params
    assert values["mirror"] and str(values["out"]).startswith("/run/")
