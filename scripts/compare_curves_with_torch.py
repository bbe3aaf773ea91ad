#!/usr/bin/env python3
"""Holds how a network learns in 200 steps of nearmetal against PyTorch.

    nearmetal export --device cpu --model bert_tiny --sequence 40 --batch 8 --steps 200 \\
      --gradient-steps 0 --seed 1 --output 1.safetensors       and of two other seeds
    scripts/compare_curves_with_torch.py 1.safetensors 2.safetensors 3.safetensors

Retraced: PyTorch starts from the parameters of the first file and takes the same steps on its batch,
in fp64, the reference, and in fp32. Every loss of the file, and what the steps changed of every
parameter, may err by twice as much as PyTorch in fp32, or by 1e-3.

Anew: PyTorch draws parameters and a batch of its own, with three seeds. Every tenth loss of every
file must lie where that of a further seed of PyTorch would in 95 % of cases.

Wrong: both are done with updates of PyTorch that are wrong on purpose, and each must fail in the
parts that are said to see it. Exit 1 where one passes, or nearmetal fails.

What PyTorch computed is kept in the folder --keep, and not computed again, so that a stopped call
can be repeated.
"""

import argparse
import hashlib
import json
import math
import os
import re
import statistics
import sys

import compare_with_torch

SEEDS = (1, 2, 3)  # of PyTorch
STUDENT = 4.303    # the 97.5 % quantile of Student's t for three values
EVERY = 10         # steps, of which one is looked at among those drawn anew
FACTOR, FLOOR = 2, 1e-3
RETRACED, ANEW = "retraced", "anew"
# What may be wrong with an AdamW, and what sees it.
WRONG = {"half the learning rate": (RETRACED, ANEW), "no correction of bias": (RETRACED, ANEW),
         "epsilon 1e-6": (RETRACED,), "decay of vectors, too": (RETRACED,)}


def adamw(torch, config, model, wrong=None):
    """AdamW with the settings of the file, or with one of WRONG."""
    rate, decay = config["learning_rate"], config["weight_decay"]
    vectors_decay = decay if wrong == "decay of vectors, too" else 0.0
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": decay},
         {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": vectors_decay}],
        lr=rate / 2 if wrong == "half the learning rate" else rate,
        eps=1e-6 if wrong == "epsilon 1e-6" else 1e-8)
    if wrong == "no correction of bias":
        leave_bias(optimizer, rate)
    return optimizer


def leave_bias(optimizer, rate):
    """Undoes what AdamW makes of the moments, which start at 0, by its rate and its epsilon."""
    taken, update = 0, optimizer.step

    def step():
        nonlocal taken
        taken += 1
        root = math.sqrt(1 - 0.999**taken)
        for group in optimizer.param_groups:
            group.update(lr=rate * (1 - 0.9**taken) / root, eps=1e-8 / root)
        update()

    optimizer.step = step


class Training(compare_with_torch.Torch):
    """The training of a file, in PyTorch."""

    def __init__(self, config, tensors):
        super().__init__(config, tensors, "cpu")
        self.work = work_of(config, tensors)

    def run(self, dtype, wrong=None):
        """The loss of every step, and what they changed of each parameter."""
        model = self.model(dtype)
        optimizer = adamw(self.torch, self.config, model, wrong)
        losses = []
        for _ in range(self.config["steps"]):
            optimizer.zero_grad()
            loss = self.torch.nn.functional.cross_entropy(self.logits(model, dtype),
                                                          self.tensors["labels"])
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
        # Not of the biases whose gradient is 0 but for rounding, which AdamW makes whole steps of.
        trained = {name: value for name, value in model.named_parameters()
                   if f"gradients.0.{name}" not in self.cancelled}
        return {"losses": losses, "changes": self.changes(trained)}

    def drawn(self, seed):
        """The losses with parameters and a batch that PyTorch draws, in the place of the file's."""
        torch = self.torch
        torch.manual_seed(seed)
        self.tensors |= self.torch_bert.Bert(self.config["model"]).state_dict()
        batch, length = self.tensors["tokens"].shape
        self.tensors["tokens"] = torch.randint(1, self.torch_bert.VOCABULARY, (batch, length))
        self.tensors["labels"] = torch.randint(length, (batch, 2))
        return self.run(torch.float32)["losses"]

    def of_file(self):
        """What run() returns, as nearmetal computed it."""
        trained = {name.removeprefix("trained."): value for name, value in self.tensors.items()
                   if name.startswith("trained.")}
        return {"losses": self.tensors["loss"].tolist(), "changes": self.changes(trained)}

    def changes(self, trained):
        return {name: value.detach().double() - self.tensors[name].double()
                for name, value in trained.items()}


def work_of(config, tensors):
    """What PyTorch's results follow from, as a text for the names of files."""
    settings = [config[name] for name in ("model", "steps", "learning_rate", "weight_decay")]
    digest = hashlib.sha256(json.dumps(settings).encode())
    for name in sorted(tensors):
        if not name.startswith(("trained.", "gradients.", "gradient_norm", "loss")):
            digest.update(tensors[name][1])
    return digest.hexdigest()[:16]


class Kept:
    """What PyTorch computed of some work, in a folder."""

    def __init__(self, torch, folder, work):
        self.torch, self.prefix = torch, os.path.join(folder, f"{work}-{torch.__version__}-")
        os.makedirs(folder, exist_ok=True)

    def get(self, name, compute):
        path = self.prefix + re.sub("[^a-z0-9]+", "-", name) + ".pt"
        if not os.path.exists(path):
            print(f"PyTorch: {name}", file=sys.stderr, flush=True)
            self.torch.save(compute(), path + ".part")
            os.replace(path + ".part", path)
        return self.torch.load(path)


def errors(actual, reference):
    """By name, relative to the reference: of every loss, and of what the steps changed."""
    found = {f"loss.{step}": abs(loss - exact) / exact
             for step, (loss, exact) in enumerate(zip(actual["losses"], reference["losses"]))}
    return found | {f"change.{name}": ((actual["changes"][name] - exact).norm() / exact.norm()).item()
                    for name, exact in reference["changes"].items()}


def beyond(found, of_torch):
    """What errs by more than its bound; one that is no number, too."""
    return [name for name, error in found.items()
            if not error <= max(FLOOR, FACTOR * of_torch[name])]


def outside(losses, band):
    """The losses that a further seed of PyTorch would have with 5 % chance, by Student's t."""
    found = []
    for step in range(0, len(losses), EVERY):
        of_step = [one[step] for one in band]
        width = STUDENT * statistics.stdev(of_step) * math.sqrt(1 + 1 / len(band))
        if not abs(losses[step] - statistics.mean(of_step)) <= width:
            found.append(f"loss.{step}")
    return found


def print_curves(curves):
    """A row for every second step that is looked at, a column for each curve."""
    print(f"{'loss of step':14}" + " ".join(f"{name:>12}" for name in curves))
    for step in range(0, len(next(iter(curves.values()))), 2 * EVERY):
        print(f"{step:<14}" + " ".join(f"{losses[step]:12.4f}" for losses in curves.values()))


def say(what, names):
    """Prints which losses and changes are beyond their bound; returns them."""
    print(f"{what}: " + (f"{len(names)} beyond, as {names[0]}" if names else "within"))
    return names


def training_of(path):
    metadata, tensors = compare_with_torch.read_safetensors(path)
    config = json.loads(metadata["config"])
    if "tokens" not in tensors or config["optimizer"] != "adamw" or config["precision"] != "fp32":
        raise ValueError(f"{path}: what is compared is BERT, trained by AdamW in fp32")
    return Training(config, tensors)


def print_errors(ours, of_torch):
    """The largest, of the losses and of the changes."""
    for kind in ("loss", "change"):
        largest = [max(error for name, error in found.items() if name.startswith(kind))
                   for found in (ours, of_torch)]
        print(f"largest error of a {kind} against fp64: nearmetal {largest[0]:.2e}, "
              f"PyTorch in fp32 {largest[1]:.2e}")


def compare(paths, folder):
    """Prints all; returns whether nearmetal is within, and each wrong update is not."""
    trainings = [training_of(path) for path in paths]
    first = trainings[0]
    torch, kept = first.torch, Kept(first.torch, folder, first.work)
    exact = kept.get("retraced in fp64", lambda: first.run(torch.float64))
    of_torch = errors(kept.get("retraced in fp32", lambda: first.run(torch.float32)), exact)
    band = [kept.get(f"anew from seed {seed}", lambda: training_of(paths[0]).drawn(seed))
            for seed in SEEDS]
    ours = [training.of_file() for training in trainings]
    print_curves({f"nearmetal {i + 1}": one["losses"] for i, one in enumerate(ours)}
                 | {f"PyTorch {seed}": losses for seed, losses in zip(SEEDS, band)})
    found = errors(ours[0], exact)
    print_errors(found, of_torch)
    passed = not say(f"{paths[0]}, {RETRACED}", beyond(found, of_torch))
    for path, one in zip(paths, ours):
        passed &= not say(f"{path}, {ANEW}", outside(one["losses"], band))
    for wrong, parts in WRONG.items():
        one = kept.get(wrong, lambda: first.run(torch.float32, wrong))
        seen = {RETRACED: say(f"{wrong}, {RETRACED}", beyond(errors(one, exact), of_torch)),
                ANEW: say(f"{wrong}, {ANEW}", outside(one["losses"], band))}
        passed &= all(seen[part] for part in parts)
    return passed


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--keep", default="curves", metavar="FOLDER",
                        help="of what PyTorch computed (default: curves)")
    arguments = parser.parse_args()
    try:
        passed = compare(arguments.files, arguments.keep)
    except ImportError as error:
        parser.error(f"PyTorch and torchvision are needed: {error}")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print("ok" if passed else "FAILED")
    return not passed


if __name__ == "__main__":
    sys.exit(main())
