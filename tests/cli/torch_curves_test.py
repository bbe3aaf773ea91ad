"""scripts/compare_curves_with_torch.py: bert_tiny learns in 200 steps of AdamW as in PyTorch, and an
update that is wrong is seen. Exit 77 without PyTorch."""

import pathlib
import re
import subprocess

import cli
import torch_test

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "compare_curves_with_torch.py"
WORK = ["--device", "cpu", "--plan-cache", "off", "--model", "bert_tiny", "--sequence", "40",
        "--batch", "8", "--steps", "200", "--gradient-steps", "0"]


class Curves(cli.CliTest):
    def export(self, name, *arguments):
        process = self.call("export", *WORK, "--output", name, *arguments)
        self.assertEqual(process.returncode, 0, process.err)
        return self.path(name)

    def compare(self, *paths):
        return subprocess.run([torch_test.PYTHON, SCRIPT, *paths, "--keep", self.path("kept")],
                              capture_output=True, text=True, timeout=cli.limit(900), check=False)

    def test_it_learns_as_in_pytorch(self):
        files = [self.export(f"{seed}.safetensors", "--seed", str(seed)) for seed in (1, 2, 3)]
        result = self.compare(*files)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(len(re.findall(r"(?m)^/.*: within$", result.stdout)), 4, result.stdout)
        # A file of a wrong update is told from the others by what PyTorch made of the same start.
        slow = self.export("slow.safetensors", "--seed", "1", "--learning-rate", "2.5e-5")
        torch_test.change(slow, edit_header=lambda header: header["__metadata__"].update(
            config=header["__metadata__"]["config"].replace("2.5e-05", "5e-05")))
        result = self.compare(slow, *files[1:])
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertNotIn("PyTorch: ", result.stderr, "it is kept")
        self.assertRegex(result.stdout, r"slow.safetensors, retraced: \d+ beyond")
        self.assertRegex(result.stdout, r"slow.safetensors, anew: \d+ beyond")
        self.assertIn("3.safetensors, anew: within", result.stdout)

    def test_other_work_is_refused(self):
        for arguments in (["--optimizer", "sgd"], ["--model", "resnet20", "--image-size", "32"]):
            small = ["export", "--device", "cpu", "--plan-cache", "off", "--model", "bert_tiny",
                     "--batch", "2", "--steps", "1", "--output", "x", "--force"]
            self.assertEqual(self.call(*small, *arguments).returncode, 0)
            result = self.compare(self.path("x"))
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("what is compared is BERT, trained by AdamW in fp32", result.stderr)


if __name__ == "__main__":
    torch_test.require_torch("import torch, torchvision")
    cli.main()
