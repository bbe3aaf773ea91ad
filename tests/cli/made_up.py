"""Reports as a sweep over 1, 2 and 4 ranks would write them, made from one of a released version."""

import copy
import json
import pathlib
import random

SOURCE = json.loads((pathlib.Path(__file__).parent.parent / "data" / "report-1.0.json")
                    .read_text(encoding="utf-8"))
BATCH = 256
STEPS = 200
WARM_UP = 20


def profile(step):
    shares = {"input": 0.01, "forward": 0.29, "backward": 0.58, "update": 0.05}
    entries = [{"name": phase, "phase": phase, "implementation": "made up",
                "seconds": share * step, "flops": 1e9, "bytes": 1e8}
               for phase, share in shares.items()]
    return {"step_seconds": step, "sum_seconds": sum(e["seconds"] for e in entries),
            "copy_bytes_per_second": 4e12, "matrix_flops_per_second": 8e14,
            "roofline_seconds": step / 2, "share_of_roofline": 0.5, "unknown": {},
            "entries": entries}


def rank(number, step, noise):
    made = copy.deepcopy(SOURCE["arms"][0]["runs"][0]["ranks"][0])
    window = [step * (1.5 if noise.random() < 0.004 else noise.gauss(1, 0.004))
              for _ in range(STEPS)]
    made["rank"] = number
    made["step_seconds"] = [1.3 * step] * WARM_UP + window
    made["loss"] = [6.9] * len(made["step_seconds"])
    ordered = sorted(window)
    for name, share in (("median", 0.5), ("p95", 0.95), ("p99", 0.99)):
        made["step_time"][name + "_seconds"] = ordered[int(share * STEPS)]
    return made


def run(ranks, throughput, minute, noise):
    made = copy.deepcopy(SOURCE["arms"][0]["runs"][0])
    step = BATCH * ranks / throughput * noise.gauss(1, 0.002)
    made["warnings"] = []
    made["started_at"] = f"2026-11-21T{minute // 60:02}:{minute % 60:02}:00Z"
    made["world_size"] = ranks
    made["ranks"] = [rank(i, step * noise.gauss(1, 0.003), noise) for i in range(ranks)]
    made["profile"] = profile(step)
    seconds = max(sum(r["step_seconds"][WARM_UP:]) for r in made["ranks"])
    made["window"] = {"first_step": WARM_UP, "steps": STEPS, "images": ranks * BATCH * STEPS,
                      "seconds": seconds}
    made["throughput_images_per_second"] = made["window"]["images"] / seconds
    return made


def sweep(first_minute, in_vm, speed, runs=4):
    """Of `speed` times 1000 images/s a rank."""
    noise = random.Random(first_minute + 1)
    report = copy.deepcopy(SOURCE)
    report["environments"][0]["hypervisor_cpu_flag"] = in_vm
    report["arms"] = [
        {"name": f"1x1x{ranks}", "kind": "measured",
         "runs": [run(ranks, 1000 * speed * ranks * efficiency, first_minute + i, noise)
                  for i in range(runs)]}
        for ranks, efficiency in ((1, 1), (2, 0.98), (4, 0.96))]
    return report
