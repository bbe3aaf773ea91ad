#!/usr/bin/env python3
"""Holds what `nearmetal export --steps N` wrote against PyTorch.

    scripts/compare_with_torch.py FILE... [--device cpu|cuda]

Loads the parameters and the batch of each file into torchvision's model, or into the BERT of
torch_bert.py, and takes the same steps in fp64, the reference, in fp32, and in the precision of the
file (16 bits under autocast). Prints the relative error |x - x64| / |x64| (Euclidean norms) of the
loss and of every gradient of the first step, of nearmetal and of PyTorch; and of the logits where
the file has them, with the trained network of the file in PyTorch's eval(). Exit 1 where one of
nearmetal is beyond its bound: twice the error that PyTorch itself has at that precision, in fp32 at
least 1e-4, or a gradient longer or shorter by a quarter; and where PyTorch itself has one that is,
so that nothing is shown.

In 16 bits export ResNets with --last-scale 0.2: at 1 rounding grows from layer to layer until it
drowns the gradients of a deep network (its bf16 gradient is nearly at right angles to that in fp64).
Under autocast PyTorch's layer norms leave fp32, and so do the sums around them; here they leave 16
bits, in which nearmetal keeps all that layers hand on. Else gradients of a BERT of twelve layers
would err up to six times as much as PyTorch's.

Why 1e-4 is not all in fp32: where the input of a ReLU lies within rounding of 0, one side passes on
a gradient that the other stops, and both are right. ResNet-50 at 224 x 224 has so many that the
gradients of any fp32 implementation are a few per cent from those in fp64; a small network with a
small batch has none, and must agree within 1e-4. Later steps start from what rounding became in
the first; of them only the trained network as a whole has a bound.
"""

import argparse
import json
import mmap
import struct
import sys

FP32_BOUND = 1e-4
FACTOR = 2  # of PyTorch's own error
SCALE_BOUND = 0.25  # of |a - 1| where a x the gradient in fp64 is nearest to a gradient
# The rounding of a loss: one number, of which PyTorch's error may be nothing by chance.
ROUNDING = {"tf32": 2**-11, "fp16": 2**-11, "bf16": 2**-8}
FORMATS = {"F32": "f", "I64": "q"}


def read_safetensors(path):
    """The metadata, and the shape and values of each tensor."""
    with open(path, "rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(bytes(content[8 : 8 + length]))
    metadata = header.pop("__metadata__")
    values = content[8 + length :]
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["shape"], values[begin:end].cast(FORMATS[entry["dtype"]]))
    return metadata, tensors


def bound_of(name, precision, torch_error):
    """The largest error that is accepted; None: any."""
    if name.startswith(("loss.", "gradients.")) and name.split(".")[1] != "0":
        return None
    if precision == "fp32":
        return max(FP32_BOUND, FACTOR * torch_error)
    return max(FACTOR * torch_error, ROUNDING[precision] if name.startswith("loss.") else 0)


class Torch:
    """The same training in PyTorch."""

    def __init__(self, config, tensors, device):
        import torch
        import torch_bert
        import torchvision

        self.torch, self.models, self.config, self.device = torch, torchvision.models, config, device
        self.torch_bert = torch_bert
        dtypes = {"f": torch.float32, "q": torch.int64}
        self.tensors = {
            name: torch.frombuffer(values, dtype=dtypes[values.format]).reshape(shape).to(device)
            for name, (shape, values) in tensors.items()
        }

    def image_model(self):
        name, classes = self.config["model"], self.config["classes"]
        known = name.removesuffix("_v1")  # torchvision has v1.5 alone
        options = {}
        if name.startswith("vgg"):
            options["dropout"] = 0.0
        if name.startswith("vit"):
            options["image_size"] = self.config["image_size"]
        model = self.models.get_model(known, num_classes=classes, **options)
        if name.startswith("vgg"):  # the first linear layer reads the last feature map as it is
            model.avgpool = self.torch.nn.Identity()
            features = (self.config["image_size"] // 32) ** 2 * 512
            model.classifier[0] = self.torch.nn.Linear(features, model.classifier[0].out_features)
        if known != name:
            for block in model.modules():
                if isinstance(block, self.models.resnet.Bottleneck):
                    block.conv1.stride, block.conv2.stride = block.conv2.stride, (1, 1)
        return model

    def model(self, dtype):
        model = (self.torch_bert.Bert(self.config["model"]) if "tokens" in self.tensors
                 else self.image_model())
        model.load_state_dict({name: self.tensors[name] for name in model.state_dict()})
        self.cancelled = {
            f"gradients.{step}.{module}.bias"
            for step in range(self.config["steps"])
            for module in (*self.before_batch_norms(model), *self.before_softmax(model))
        }
        return model.to(self.device, dtype).train()

    def before_batch_norms(self, model):
        """Names of the layers whose bias the batch norm behind them takes away: its gradient is 0 but
        for rounding."""
        before = None
        for name, module in model.named_modules():
            if isinstance(module, self.torch.nn.BatchNorm2d) and before is not None:
                if before[1].bias is not None:
                    yield before[0]
            is_layer = isinstance(module, (self.torch.nn.Conv2d, self.torch.nn.Linear))
            before = (name, module) if is_layer else None

    def before_softmax(self, model):
        """Names of the layers whose bias adds the same to all that a softmax of BERT reads."""
        layers = self.torch_bert.BERTS.get(self.config["model"], (0,))[0]
        last = f"layer.{layers - 1}.output.LayerNorm"
        for name, _ in model.named_modules():
            if name.endswith(("self.key", "qa_outputs", last)):
                yield name

    def keep_in(self, half, model):
        """Lets layer norms leave this type, and dropout, with which the sums of torchvision's ViT
        begin; None: as they are."""
        if half is None:
            return
        for module in model.modules():
            if isinstance(module, (self.torch.nn.LayerNorm, self.torch.nn.Dropout)):
                module.register_forward_hook(lambda _module, _inputs, output: output.to(half))

    def logits(self, model, dtype):
        """The logits; those of BERT are [batch, tokens, 2], start and end."""
        if "tokens" not in self.tensors:
            return model(self.tensors["images"].to(dtype))
        return self.torch.stack(model(self.tensors["tokens"]), dim=2)

    def optimizer(self, model):
        """As nearmetal updates: AdamW decays matrices alone."""
        config, optimizers = self.config, self.torch.optim
        rate, decay = config["learning_rate"], config["weight_decay"]
        if config["optimizer"] != "adamw":
            return optimizers.SGD(model.parameters(), lr=rate, momentum=config["momentum"],
                                  weight_decay=decay)
        matrices = [p for p in model.parameters() if p.dim() > 1]
        vectors = [p for p in model.parameters() if p.dim() < 2]
        return optimizers.AdamW([{"params": matrices, "weight_decay": decay},
                                 {"params": vectors, "weight_decay": 0.0}], lr=rate)

    def train(self, precision):
        """Loss and gradients of every step, then what they made of the network, by name."""
        torch, config = self.torch, self.config
        for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
            backend.allow_tf32 = precision == "tf32"
        dtype = torch.float64 if precision == "fp64" else torch.float32
        half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)
        scale = config["loss_scale"]["initial"] if half else 1
        model = self.model(dtype)
        self.keep_in(half, model)
        optimizer = self.optimizer(model)
        result = {}
        for step in range(config["steps"]):
            optimizer.zero_grad()
            with torch.autocast(self.device, dtype=half, enabled=half is not None):
                logits = self.logits(model, dtype)
                loss = torch.nn.functional.cross_entropy(logits, self.tensors["labels"])
            (loss * scale).backward()
            result[f"loss.{step}"] = loss.detach()
            for name, parameter in model.named_parameters():
                parameter.grad /= scale
                result[f"gradients.{step}.{name}"] = parameter.grad.clone()
            optimizer.step()
        result.update(self.trained(model.state_dict()))
        return result

    def evaluate(self, precision):
        """The outputs of the trained network of the file for its images in eval(), by name; none
        where the file has no logits."""
        if "logits" not in self.tensors:
            return {}
        torch = self.torch
        dtype = torch.float64 if precision == "fp64" else torch.float32
        half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)
        model = self.model(dtype)
        model.load_state_dict({name: self.tensors["trained." + name] for name in model.state_dict()})
        self.keep_in(half, model.eval())
        with torch.inference_mode(), torch.autocast(self.device, dtype=half, enabled=bool(half)):
            return {"logits": self.logits(model, dtype)}

    def exported(self):
        """The result of train(), as nearmetal computed it."""
        result = {f"loss.{step}": loss for step, loss in enumerate(self.tensors["loss"])}
        for name, value in self.tensors.items():
            if name.startswith("gradients.") or name == "logits":
                result[name] = value
        prefix = "trained."
        state = {name.removeprefix(prefix): value for name, value in self.tensors.items()
                 if name.startswith(prefix)}
        return result | self.trained(state)

    def trained(self, state):
        """Parameters and running statistics, each as one vector."""
        buffers = ("running_mean", "running_var")
        others = (*buffers, "num_batches_tracked")
        groups = {
            "trained.running_statistics": [n for n in state if n.endswith(buffers)],
            "trained.parameters": [n for n in state if not n.endswith(others)],
        }
        return {group: self.torch.cat([state[name].double().flatten() for name in sorted(names)])
                for group, names in groups.items() if names}

    def errors(self, actual, reference):
        """Relative error by name; what is left of a gradient that is 0, relative to the layer's other
        one."""
        measured = {name: name.removesuffix("bias") + "weight" if name in self.cancelled else name
                    for name in reference}
        return {
            name: ((actual[name].double() - value.double()).norm()
                   / reference[measured[name]].double().norm()).item()
            for name, value in reference.items()
        }

    def scale_errors(self, actual, reference):
        """|a - 1| of the gradients of the first step, by name, for a x reference nearest to them."""
        return {
            name: abs((actual[name].double() * value.double()).sum().item()
                      / value.double().square().sum().item() - 1)
            for name, value in reference.items()
            if name.startswith("gradients.0.") and name not in self.cancelled
        }


def compare(path, device):
    """Prints the errors; returns the names of those beyond their bound, and of gradients of which
    nothing is shown."""
    metadata, tensors = read_safetensors(path)
    config = json.loads(metadata["config"])
    if not config["steps"]:
        raise ValueError(f"{path} holds parameters alone; export it with --steps 1")
    precision = config["precision"]
    if precision == "tf32" and device == "cpu":
        raise ValueError(f"{path} is in tf32, which a CPU does not have: --device cuda")
    torch = Torch(config, tensors, device)
    reference = torch.train("fp64") | torch.evaluate("fp64")
    results = [torch.exported()]
    for torch_precision in dict.fromkeys((precision, "fp32")):
        results.append(torch.train(torch_precision) | torch.evaluate(torch_precision))
    errors = [torch.errors(result, reference) for result in results]
    scales = [torch.scale_errors(result, reference) for result in results[:2]]
    size = config.get("sequence") or f"{config['image_size']}x{config['image_size']}"
    print(f"{path}: {config['model']}, {precision}, batch {config['batch']}, {size}, "
          f"on {metadata['device_name']}; "
          f"PyTorch {torch.torch.__version__} on {device}")
    width = max(map(len, reference))
    print(f"{'error against fp64':{width}} {'nearmetal':>10} {'bound':>10} {'PyTorch':>10}"
          + (f" {'its fp32':>10}" if len(errors) == 3 else ""))
    beyond, blind = [], []
    for name in reference:
        ours, *theirs = (error[name] for error in errors)
        bound = bound_of(name, precision, theirs[0])
        if bound is not None and not ours <= bound:  # also one that is no number
            beyond.append(name)
        elif name in scales[0] and not scales[0][name] <= SCALE_BOUND:
            (blind if scales[1][name] > SCALE_BOUND else beyond).append(name)
        print(f"{name:{width}} {ours:10.2e} {'' if bound is None else format(bound, '.2e'):>10} "
              + " ".join(f"{error:10.2e}" for error in theirs)
              + (" BEYOND" if name in beyond else ""))
    if blind:
        print(f"nothing is shown of {len(blind)} gradients: at {precision} rounding decides them, in "
              "PyTorch too; export with --last-scale 0.2")
    return beyond, blind


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--device", choices=("cpu", "cuda"),
                        help="of PyTorch; by default the GPU if there is one")
    arguments = parser.parse_args()
    try:
        import torch
        import torchvision  # noqa: F401, to say early that it is not there
    except ImportError as error:
        parser.error(f"PyTorch and torchvision are needed: {error}")
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = {path: compare(path, device) for path in arguments.files}
    except (OSError, ValueError) as error:
        parser.error(str(error))
    for path, (beyond, blind) in found.items():
        said = {"beyond the bound": beyond, "shown nothing of": blind}
        print(f"{path}: " + ("; ".join(f"{len(names)} {what}: {', '.join(names)}"
                                       for what, names in said.items() if names) or "ok"))
    return 1 if any(any(lists) for lists in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
