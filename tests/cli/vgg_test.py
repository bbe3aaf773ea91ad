"""VGG16, which has no batch norm, by the commands that compute, on the CPU with small images."""

import cli
import export_test

SMALL = ["--device", "cpu", "--model", "vgg16", "--image-size", "32", "--plan-cache", "off"]


class Vgg(cli.CliTest):
    def test_it_verifies_at_its_defaults_and_is_profiled(self):
        process = self.call("run", *SMALL, "--warmup", "1", "--steps", "2", "--verify", "--profile",
                            "--output", "report.json")
        self.assertEqual(process.returncode, 0, process.out + process.err)
        run = self.report()["arms"][0]["runs"][0]
        self.assertTrue(run["proof"]["verify"]["passed"])
        self.assertEqual(run["proof"]["verify"]["images"], 16, "the batch of its defaults")
        parts = " ".join(entry["name"] for entry in run["profile"]["entries"])
        for layer in ("features.0", "features.4", "features.30", "classifier.6"):
            self.assertIn(layer, parts)

    def test_it_is_exported_by_the_names_of_torchvision(self):
        process = self.call("export", *SMALL, "--batch", "2", "--steps", "1", "--output", "x")
        self.assertEqual(process.returncode, 0, process.err)
        _, tensors = export_test.read(self.path("x"))
        self.assertEqual(tensors["features.28.weight"][0], (512, 512, 3, 3))
        self.assertEqual(tensors["classifier.0.weight"][0], (4096, 512), "of one pixel")
        self.assertEqual(tensors["gradients.0.classifier.6.bias"][0], (1000,))

    def test_its_kernels_are_timed_alone(self):
        process = self.call("micro", *SMALL, "--batch", "2", "--repetitions", "2", "--seconds", "0.01",
                            "^step/(forward|backward)/(features.4|classifier.6)")
        self.assertEqual(process.returncode, 0, process.err)
        for name in ("step/forward/features.4", "step/backward/features.4",
                     "step/forward/classifier.6", "step/backward/classifier.6"):
            self.assertIn(name, process.out)


if __name__ == "__main__":
    cli.main()
