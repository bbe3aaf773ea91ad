"""Gradients of the CUDA backend in 16 bits against PyTorch's on the same GPU. Exit 77 without a GPU, or
without a PyTorch that sees it."""

import cli
import torch_test

CASES = (
    ("--model", "resnet50", "--image-size", "64", "--batch", "8", "--last-scale", "0.2"),
    ("--model", "vit_b_16", "--image-size", "64", "--batch", "4"),
    ("--model", "bert_tiny", "--sequence", "40", "--batch", "3"),
    ("--model", "bert_base", "--sequence", "128", "--batch", "4"),
)


class TorchGpu(torch_test.TorchTest):
    DEVICE = "cuda"

    def test_gradients_in_16_bits_agree(self):
        for case in CASES:
            for precision in ("bf16", "fp16"):
                with self.subTest(model=case[1], precision=precision):
                    path = self.export(*case, "--precision", precision, "--steps", "1",
                                       "--inference", "--force")
                    result = self.compare(path)
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                    self.assertIn("logits ", result.stdout)

    def test_a_halved_gradient_of_any_parameter_is_seen(self):
        for precision in ("bf16", "fp16"):
            with self.subTest(precision=precision):
                path = self.export(*torch_test.BERT, "--precision", precision, "--steps", "1", "--force")
                self.assert_sees_halved_gradients(path, torch_test.BERT_WITHOUT_GRADIENT)


if __name__ == "__main__":
    torch_test.require_torch("import torch, torchvision\n"
                             "assert torch.cuda.is_available(), 'PyTorch sees no GPU'")
    cli.main()
