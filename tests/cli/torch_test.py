"""scripts/compare_with_torch.py, with what `nearmetal export` writes. Exit 77 without PyTorch."""

import array
import json
import os
import pathlib
import struct
import subprocess
import sys

import cli
import export_test

PYTHON = os.environ.get("NEARMETAL_TORCH_PYTHON", sys.executable)
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "compare_with_torch.py"

# Prints of how many tensors, loss and gradients, and by how much at most those of torch_bert.py differ
# from Hugging Face's.
SAME_AS_HUGGING_FACE = """
import sys, torch, transformers
sys.path.insert(0, sys.argv[1])
import torch_bert
torch.manual_seed(1)
ours = torch_bert.Bert("bert_tiny").double()
layers, heads, features = torch_bert.BERTS["bert_tiny"]
theirs = transformers.BertForQuestionAnswering(transformers.BertConfig(
    num_hidden_layers=layers, num_attention_heads=heads, hidden_size=features,
    intermediate_size=4 * features, hidden_dropout_prob=0, attention_probs_dropout_prob=0)).double()
theirs.load_state_dict(ours.state_dict())
tokens, ends = torch.randint(torch_bert.VOCABULARY, (3, 40)), torch.randint(40, (3, 2))
answer = theirs(tokens, start_positions=ends[:, 0], end_positions=ends[:, 1])
answer.loss.backward()
logits = torch.stack(ours(tokens), dim=2)
loss = torch.nn.functional.cross_entropy(logits, ends)
loss.backward()
gradients = dict(theirs.named_parameters())
pairs = [(loss, answer.loss)] + [(p.grad, gradients[n].grad) for n, p in ours.named_parameters()]
print(len(pairs), max(((a - b).norm() / (1e-6 + b.norm())).item() for a, b in pairs))
"""

# Few enough inputs of ReLUs that none lies within rounding of 0: fp32 must agree within 1e-4.
SMALL = ["--model", "resnet18", "--image-size", "64", "--batch", "4", "--steps", "2"]
BERT = ["--model", "bert_tiny", "--sequence", "40", "--batch", "3"]
# Biases that add the same to all that a softmax reads.
BERT_WITHOUT_GRADIENT = ("self.key.bias", "qa_outputs.bias", "layer.1.output.LayerNorm.bias")


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


def halve_gradients(path):
    """Those of the first step, all of them; returns their names."""
    _, tensors = export_test.read(path)
    names = {name for name in tensors if name.startswith("gradients.0.")}
    with open(path, "r+b") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        for name in names:
            file.seek(8 + length + header[name]["data_offsets"][0])
            file.write(array.array("f", (value / 2 for value in tensors[name][1])))
    return names


def as_bf16(header):
    metadata = header["__metadata__"]
    metadata["config"] = metadata["config"].replace('"fp32"', '"bf16"')


class TorchTest(cli.CliTest):
    DEVICE = "cpu"  # of nearmetal and of PyTorch

    def export(self, *arguments):
        model = [] if "--model" in arguments else SMALL
        process = self.call("export", "--device", self.DEVICE, "--plan-cache", "off", *model,
                            "--output", "x.safetensors", *arguments)
        self.assertEqual(process.returncode, 0, process.err)
        return self.path("x.safetensors")

    def compare(self, path):
        return subprocess.run([PYTHON, SCRIPT, "--device", self.DEVICE, path], capture_output=True,
                              text=True, timeout=cli.limit(100), check=False)

    def assert_sees_halved_gradients(self, path, none):
        """Of all parameters but those whose gradient is 0 but for rounding."""
        names = halve_gradients(path)
        result = self.compare(path)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        beyond = set(result.stdout.splitlines()[-1].split("beyond the bound: ")[1].split(", "))
        self.assertEqual(beyond, {name for name in names if not name.endswith(none)})


class Torch(TorchTest):
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
                path = self.export("--model", model, "--image-size", "32", "--batch", "4", "--steps",
                                   "1", "--inference", "--force")
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
        change(path, scale="gradients.0.class_token", factor=0.5)
        self.assertIn("1 beyond the bound: gradients.0.class_token\n", self.compare(path).stdout)

    def test_bert_agrees_in_training_and_evaluation(self):
        path = self.export(*BERT, "--steps", "2", "--inference")
        result = self.compare(path)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.count("gradients.0."), 5 + 2 * 16 + 2)
        self.assertIn("logits ", result.stdout)
        self.assert_sees_halved_gradients(path, BERT_WITHOUT_GRADIENT)

    def test_bert_in_bf16_is_compared_with_autocast(self):
        path = self.export(*BERT, "--steps", "1", "--inference")
        change(path, edit_header=as_bf16)
        result = self.compare(path)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assert_sees_halved_gradients(path, BERT_WITHOUT_GRADIENT)

    def test_the_bert_that_it_is_compared_with_is_that_of_hugging_face(self):
        if subprocess.run([PYTHON, "-c", "import transformers"], capture_output=True,
                          check=False).returncode != 0:
            self.skipTest("transformers is not installed")
        result = subprocess.run([PYTHON, "-c", SAME_AS_HUGGING_FACE, SCRIPT.parent],
                                capture_output=True, text=True, timeout=cli.limit(100), check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        tensors, error = result.stdout.split()
        self.assertEqual(int(tensors), 1 + 5 + 2 * 16 + 2)
        self.assertLess(float(error), 1e-9)

    def test_bf16_is_compared_with_autocast(self):
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


def require_torch(probe):
    """Ends with 77, which CTest shows as skipped, where these lines of Python fail."""
    process = subprocess.run([PYTHON, "-c", probe], capture_output=True, text=True, check=False)
    if process.returncode != 0:
        print(f"skipped: {PYTHON}: {process.stderr.strip().splitlines()[-1]}")
        sys.exit(77)


if __name__ == "__main__":
    require_torch("import torch, torchvision")
    cli.main()
