"""ViT-B/16 by the commands that compute, on the CPU with small images."""

import cli
import export_test

SMALL = ["--device", "cpu", "--model", "vit_b_16", "--image-size", "32", "--plan-cache", "off"]
LAYER = "encoder.layers.encoder_layer_0"


class Vit(cli.CliTest):
    def test_it_learns(self):
        process = self.call("run", *SMALL, "--batch", "2", "--warmup", "1", "--steps", "1", "--verify",
                            "--output", "report.json")
        self.assertEqual(process.returncode, 0, process.out + process.err)
        self.assertTrue(self.report()["arms"][0]["runs"][0]["proof"]["verify"]["passed"])

    def test_it_is_exported_by_the_names_of_torchvision(self):
        process = self.call("export", "--model", "vit_b_16", "--image-size", "32", "--output", "x")
        self.assertEqual(process.returncode, 0, process.err)
        _, tensors = export_test.read(self.path("x"))
        self.assertEqual(len(tensors), 152)
        self.assertEqual(tensors["encoder.pos_embedding"][0], (1, 5, 768))
        self.assertEqual(tensors[f"{LAYER}.self_attention.in_proj_weight"][0], (2304, 768))
        self.assertEqual(set(tensors["class_token"][1]), {0})
        self.assertNotIn(0, tensors["heads.head.bias"][1][:10], "so that gradients flow")

    def test_its_kernels_are_timed_alone(self):
        process = self.call("micro", *SMALL, "--batch", "1", "--repetitions", "2", "--seconds", "0.01",
                            f"^step/(forward|backward)/{LAYER}.(ln_1|self_attention)$")
        self.assertEqual(process.returncode, 0, process.err)
        for name in ("ln_1", "self_attention"):
            self.assertIn(f"step/forward/{LAYER}.{name}", process.out)
            self.assertIn(f"step/backward/{LAYER}.{name}", process.out)

    def test_what_it_cannot_take_is_refused_with_the_reason(self):
        for option, reason in ((("--image-size", "50"), "50 is no multiple of 16"),
                               (("--precision", "bf16"), "fp32")):
            process = self.call("run", *SMALL, *option)
            self.assertEqual((process.returncode, process.out), (2, ""), process.err)
            self.assertIn(reason, process.err.splitlines()[-1])


if __name__ == "__main__":
    cli.main()
