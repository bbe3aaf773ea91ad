"""scripts/compare_with_torch.py, with what `nearmetal export` writes. Exit 77 without PyTorch."""

import json
import os
import pathlib
import struct
import subprocess
import sys

import cli

PYTHON = os.environ.get("NEARMETAL_TORCH_PYTHON", sys.executable)
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "compare_with_torch.py"

# Few enough inputs of ReLUs that none lies within rounding of 0: fp32 must agree within 1e-4.
SMALL = ["--model", "resnet18", "--image-size", "64", "--batch", "4", "--steps", "2",
         "--device", "cpu", "--plan-cache", "off"]


def change(path, edit_header=None, scale=None, factor=1.001):
    """Edits the header in place, or multiplies the values of the tensor `scale` by the factor."""
    with open(path, "r+b") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        if edit_header:
            edit_header(header)
            file.seek(8)
            file.write(json.dumps(header, separators=(",", ":")).encode().ljust(length))
        if scale:
            begin, end = header[scale]["data_offsets"]
            file.seek(8 + length + begin)
            values = struct.unpack(f"<{(end - begin) // 4}f", file.read(end - begin))
            file.seek(8 + length + begin)
            file.write(struct.pack(f"<{len(values)}f", *(factor * value for value in values)))


def as_bf16(header):
    metadata = header["__metadata__"]
    metadata["config"] = metadata["config"].replace('"fp32"', '"bf16"')


class Torch(cli.CliTest):
    def export(self, *arguments):
        process = self.call("export", *SMALL, "--output", "x.safetensors", *arguments)
        self.assertEqual(process.returncode, 0, process.err)
        return self.path("x.safetensors")

    def compare(self, path):
        return subprocess.run([PYTHON, SCRIPT, "--device", "cpu", path], capture_output=True,
                              text=True, timeout=cli.limit(100), check=False)

    def test_logits_of_the_trained_network_agree_and_others_do_not(self):
        path = self.export("--inference")
        result = self.compare(path)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("logits ", result.stdout)
        change(path, scale="logits")
        self.assertIn("1 beyond the bound: logits", self.compare(path).stdout)

    def test_agrees_with_pytorch_and_sees_a_gradient_that_does_not(self):
        path = self.export()
        result = self.compare(path)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.count("gradients.0."), 62)
        self.assertIn("x.safetensors: ok", result.stdout)
        change(path, scale="gradients.0.layer2.0.bn1.bias")
        result = self.compare(path)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("1 beyond the bound: gradients.0.layer2.0.bn1.bias\n", result.stdout)

    def test_vgg_agrees_in_training_and_evaluation(self):
        for model, weights in (("vgg16", 32), ("vgg16_bn", 58)):
            with self.subTest(model=model):
                path = self.export("--model", model, "--image-size", "32", "--steps", "1",
                                   "--inference", "--force")
                result = self.compare(path)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                self.assertEqual(result.stdout.count("gradients.0."), weights)
                self.assertIn("logits ", result.stdout)

    def test_vit_agrees_in_training_and_evaluation(self):
        path = self.export("--model", "vit_b_16", "--image-size", "32", "--batch", "2", "--steps",
                           "1", "--inference")
        result = self.compare(path)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.count("gradients.0."), 152)
        self.assertIn("trained.parameters ", result.stdout)
        self.assertIn("logits ", result.stdout)

    def test_bert_agrees_in_training_and_evaluation(self):
        if subprocess.run([PYTHON, "-c", "import transformers"], capture_output=True,
                          check=False).returncode != 0:
            self.skipTest("transformers is not installed")
        process = self.call("export", "--device", "cpu", "--plan-cache", "off", "--model", "bert_tiny",
                            "--sequence", "40", "--batch", "3", "--steps", "2", "--inference",
                            "--output", "x.safetensors")
        self.assertEqual(process.returncode, 0, process.err)
        result = self.compare(self.path("x.safetensors"))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.count("gradients.0."), 5 + 2 * 16 + 2)
        self.assertIn("logits ", result.stdout)
        halved = "gradients.0.bert.encoder.layer.1.attention.self.value.bias"
        change(self.path("x.safetensors"), scale=halved, factor=0.5)
        self.assertIn(f"1 beyond the bound: {halved}\n", self.compare(self.path("x.safetensors")).stdout)

    def test_bf16_is_held_against_autocast(self):
        path = self.export("--steps", "1", "--last-scale", "0.2")
        change(path, edit_header=as_bf16)
        result = self.compare(path)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("its fp32", result.stdout)
        change(path, scale="gradients.0.layer2.0.conv1.weight", factor=0.5)
        result = self.compare(path)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("1 beyond the bound: gradients.0.layer2.0.conv1.weight\n", result.stdout)

    def test_parameters_alone_are_refused(self):
        self.call("export", "--model", "resnet18", "--output", "y")
        result = self.compare(self.path("y"))
        self.assertEqual(result.returncode, 2)
        self.assertIn("export it with --steps 1", result.stderr)


if __name__ == "__main__":
    probe = subprocess.run([PYTHON, "-c", "import torch, torchvision"], capture_output=True,
                           text=True, check=False)
    if probe.returncode != 0:
        print(f"skipped: {PYTHON}: {probe.stderr.strip().splitlines()[-1]}")
        sys.exit(77)
    cli.main()
