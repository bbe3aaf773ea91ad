"""Reports as a sweep over 1, 2 and 4 ranks would write them, made from one of a released version."""

import copy
import hashlib
import json
import pathlib
import random
import statistics

SOURCE = json.loads((pathlib.Path(__file__).parent.parent / "data" / "report-1.0.json")
                    .read_text(encoding="utf-8"))
BATCH = 256
STEPS = 200
WARM_UP = 20


# Settings of output and display, which decide nothing.
DISPLAY = {"attribute", "digest", "plan_cache", "plans", "output", "environment", "host_facts",
           "no_host_info", "monitor_hz", "force", "json", "quiet", "no_progress"}


def settled(report):
    """The report with all that follows from its throughputs, step times and settings."""
    config = {name: setting["value"] for name, setting in report["invocation"]["config"].items()}
    work = json.dumps({name: value for name, value in config.items() if name not in DISPLAY},
                      separators=(",", ":"), ensure_ascii=False)
    report["invocation"]["config_sha256"] = hashlib.sha256(work.encode()).hexdigest()
    for arm in report["arms"]:
        for one in arm["runs"]:
            if one["window"] and one["throughput_images_per_second"]:
                settle(one, (arm.get("config") or config)["batch"])
    return report


def plans_sha256(plans):
    choices = sorted(f"{plan['key']}\0{plan['implementation']}\0" for plan in plans)
    return hashlib.sha256("".join(choices).encode()).hexdigest()


def settle(made, batch):
    window, throughput = made["window"], made["throughput_images_per_second"]
    window["images"] = batch * window["steps"] * made["world_size"]
    window["seconds"] = window["images"] / throughput
    made["flops_per_second"] = throughput * made["flops_per_image"]
    if made["peak_flops_per_second"]:
        made["share_of_peak"] = made["flops_per_second"] / made["peak_flops_per_second"]
    timed = slice(window["first_step"], window["first_step"] + window["steps"])
    longest = max(sum(one["step_seconds"][timed]) for one in made["ranks"])
    for one in made["ranks"]:
        one["step_seconds"] = [step * window["seconds"] / longest for step in one["step_seconds"]]
        one["step_time"].update(step_time(one["step_seconds"][timed]))


def step_time(steps):
    median = statistics.median(steps)
    shares = statistics.quantiles(steps, n=100, method="inclusive")
    jitter = 1.4826 * statistics.median(abs(step - median) for step in steps)
    return {"median_seconds": median, "p95_seconds": shares[94], "p99_seconds": shares[98],
            "jitter_seconds": jitter}


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
    report["invocation"]["config"]["batch"]["value"] = BATCH
    report["arms"] = [
        {"name": f"1x1x{ranks}", "kind": "measured",
         "runs": [run(ranks, 1000 * speed * ranks * efficiency, first_minute + i, noise)
                  for i in range(runs)]}
        for ranks, efficiency in ((1, 1), (2, 0.98), (4, 0.96))]
    return settled(report)
