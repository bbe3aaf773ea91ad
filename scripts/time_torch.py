#!/usr/bin/env python3
"""Measures what PyTorch makes of the work that nearmetal does, to be quoted beside it.

    scripts/time_torch.py --model resnet50 --batch 32,256 --mode default,reduce-overhead
    scripts/time_torch.py --model resnet50 --batch 1,32 --inference --output torch.csv
    scripts/time_torch.py --model bert_base --batch 4,32 --precision bf16 --output torch.csv

Every combination of models, batches, precisions and modes is a row of CSV on stdout: samples/s,
which are images or sequences, from the median time of a step by CUDA events. With --output the
rows are kept in that file, and those that it already has are not measured again, so that a stopped
call can be repeated.

Networks of images are torchvision's, in channels-last layout, on random images that stay on the
device. BERT is that of torch_bert.py. Training draws labels anew at each step, and BERT's tokens,
computes under autocast, scales the loss in fp16, and takes the fused kernel of AdamW for
transformers and of SGD for others; dropout is 0. Inference runs the network in eval() with
parameters of the precision itself. Modes: eager, cudagraph (eager, captured as one CUDA graph;
inference alone), or one of torch.compile's: default, reduce-overhead, max-autotune.

Under torchrun each process trains on a GPU of its own, and DistributedDataParallel averages their
gradients; images/s are then those of all.
"""

import argparse
import csv
import itertools
import os
import sys
import time

COLUMNS = ("model", "work", "precision", "batch", "size", "mode", "gpus", "samples_per_second",
           "steps", "device", "torch", "cudnn")
IDENTITY = COLUMNS[:7]
GPUS = int(os.environ.get("WORLD_SIZE", 1))
RANK = int(os.environ.get("RANK", 0))
COMPILED = ("default", "reduce-overhead", "max-autotune")
MODES = ("eager", "cudagraph", *COMPILED)
WARM_UP_STEPS = 12


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: text.split(",")
    numbers = lambda text: [int(word) for word in text.split(",")]
    parser.add_argument("--model", type=words, default=["resnet50"], metavar="NAME[,NAME...]")
    parser.add_argument("--batch", type=numbers, default=[256], metavar="N[,N...]")
    parser.add_argument("--precision", type=words, default=["fp16"],
                        metavar="P[,P...]", help="fp16, bf16, tf32 or fp32")
    parser.add_argument("--mode", type=words, default=["default", "reduce-overhead"],
                        metavar="MODE[,MODE...]", help=", ".join(MODES))
    parser.add_argument("--inference", action="store_true")
    parser.add_argument("--image-size", type=int, default=224, metavar="N")
    parser.add_argument("--sequence", type=int, default=384, metavar="N", help="tokens of BERT")
    parser.add_argument("--seconds", type=float, default=3, help="of timed steps (default: 3)")
    parser.add_argument("--output", metavar="FILE")
    arguments = parser.parse_args()
    for mode in arguments.mode:
        if mode not in MODES:
            parser.error(f"--mode {mode}: not one of {', '.join(MODES)}")
        if mode == "cudagraph" and not arguments.inference:
            parser.error("--mode cudagraph is for --inference")
    for precision in arguments.precision:
        if precision not in ("fp16", "bf16", "tf32", "fp32"):
            parser.error(f"--precision {precision}: not one of fp16, bf16, tf32, fp32")
    return arguments


def vision_network(name, image_size):
    import torchvision

    if name.startswith("vgg"):
        return torchvision.models.get_model(name, dropout=0.0)
    if name.startswith("vit"):
        return torchvision.models.get_model(name, image_size=image_size)
    return torchvision.models.get_model(name)


class Images:
    """The input of a network of images, and the loss of its outputs."""

    def __init__(self, torch, batch, size):
        self.torch = torch
        self.batch = torch.randn(batch, 3, size, size, device="cuda").to(
            memory_format=torch.channels_last)

    def draw(self, dtype=None):
        return self.batch if dtype is None else self.batch.to(dtype)

    def loss(self, outputs):
        labels = self.torch.randint(1000, (len(self.batch),), device="cuda")
        return self.torch.nn.functional.cross_entropy(outputs, labels)


class Sequences:
    """The input of BERT, and the loss of its outputs."""

    def __init__(self, torch, batch, size):
        import torch_bert

        self.torch, self.shape, self.words = torch, (batch, size), torch_bert.VOCABULARY

    def draw(self, _dtype=None):
        return self.torch.randint(self.words, self.shape, device="cuda")

    def loss(self, outputs):
        batch, size = self.shape
        ends = self.torch.randint(size, (2, batch), device="cuda")
        return sum(map(self.torch.nn.functional.cross_entropy, outputs, ends)) / 2


def is_bert(name):
    return name.startswith("bert")


def is_transformer(name):
    return is_bert(name) or name.startswith("vit")


def make_optimizer(torch, name, model):
    if is_transformer(name):
        return torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, fused=True)


def sixteen_bits(torch, precision):
    return {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)


def training_step(torch, name, model, samples, precision, mode):
    """One step as a function of nothing."""
    optimizer = make_optimizer(torch, name, model)
    scaler = torch.amp.GradScaler(enabled=precision == "fp16")
    dtype = sixteen_bits(torch, precision)
    if GPUS > 1:
        model = torch.nn.parallel.DistributedDataParallel(
            model, device_ids=[torch.cuda.current_device()], gradient_as_bucket_view=True)
    forward = torch.compile(model, mode=mode) if mode in COMPILED else model

    def step():
        batch = samples.draw()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
            loss = samples.loss(forward(batch))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def inference_step(torch, _name, model, samples, precision, mode):
    dtype = sixteen_bits(torch, precision) or torch.float32
    model, batch = model.eval().to(dtype), samples.draw(dtype)
    forward = torch.compile(model, mode=mode) if mode in COMPILED else model

    def step():
        with torch.inference_mode():
            return forward(batch)

    if mode != "cudagraph":
        return step
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def goes_on(torch, end, steps):
    """Whether there is time left, by the clock of rank 0, asked every 16 steps."""
    if GPUS == 1:
        return time.monotonic() < end
    if steps % 16 != 0:
        return True
    left = torch.tensor([float(time.monotonic() < end)], device="cuda")
    torch.distributed.broadcast(left, 0)
    return bool(left.item())


def median_step_seconds(torch, step, seconds):
    """The median of the steps of so many seconds, and how many these were."""
    for _ in range(WARM_UP_STEPS):
        step()
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True)]
    marks[0].record()
    end = time.monotonic() + seconds
    while goes_on(torch, end, len(marks)):
        step()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        if len(marks) % 16 == 0:
            marks[-8].synchronize()  # so that the host is not far ahead of the clock
    torch.cuda.synchronize()
    times = sorted(first.elapsed_time(then) / 1e3 for first, then in zip(marks, marks[1:]))
    return times[len(times) // 2], len(times)


def size_of(name, arguments):
    return arguments.sequence if is_bert(name) else arguments.image_size


def measure(name, batch, precision, mode, arguments):
    import torch

    torch._dynamo.reset()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    size = size_of(name, arguments)
    if is_bert(name):
        import torch_bert

        model, samples = torch_bert.Bert(name).cuda(), Sequences(torch, batch, size)
    else:
        model = vision_network(name, size).to("cuda", memory_format=torch.channels_last)
        samples = Images(torch, batch, size)
    make = inference_step if arguments.inference else training_step
    step = make(torch, name, model, samples, precision, mode)
    seconds, steps = median_step_seconds(torch, step, arguments.seconds)
    return {"samples_per_second": f"{GPUS * batch / seconds:.1f}", "steps": steps,
            "device": torch.cuda.get_device_name(), "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version()}


def kept_rows(path):
    if path is None or not os.path.exists(path):
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def keep(path, row):
    if path is None:
        return
    new = not os.path.exists(path)
    with open(path, "a", newline="") as file:
        kept = csv.DictWriter(file, COLUMNS)
        if new:
            kept.writeheader()
        kept.writerow(row)


def join():
    import torch

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl")


def main():
    arguments = parse_arguments()
    identity = lambda row: tuple(str(row[column]) for column in IDENTITY)
    known = {identity(row): row for row in kept_rows(arguments.output)}
    if GPUS > 1:
        join()
    if RANK == 0:
        csv.DictWriter(sys.stdout, COLUMNS).writeheader()
    work = "inference" if arguments.inference else "training"
    for name, precision, batch, mode in itertools.product(
            arguments.model, arguments.precision, arguments.batch, arguments.mode):
        size = size_of(name, arguments)
        row = dict(zip(IDENTITY, (name, work, precision, batch, size, mode, GPUS)))
        found = known.get(identity(row))
        row = found or row | measure(name, batch, precision, mode, arguments)
        if RANK == 0:
            csv.DictWriter(sys.stdout, COLUMNS).writerow(row)
            sys.stdout.flush()
            if not found:
                keep(arguments.output, row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
