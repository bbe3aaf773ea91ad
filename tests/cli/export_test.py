"""`nearmetal export`: the file, read with Python's own json and struct."""

import json
import math
import os
import struct

import cli

TINY = [option for option in cli.TINY if option != "run"]


def read(path):
    """Metadata, and shape and values of each tensor; checks what the format asks for."""
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    metadata = header.pop("__metadata__")
    values = memoryview(content)[8 + length:]
    assert length % 8 == 0, "values are aligned"
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        code, size = {"F32": ("f", 4), "I64": ("q", 8)}[entry["dtype"]]
        begin, last = entry["data_offsets"]
        assert begin == end, "no hole and no overlap before " + name
        assert last - begin == size * math.prod(entry["shape"]), name
        tensors[name] = (tuple(entry["shape"]), values[begin:last].cast(code))
        end = last
    assert end == len(values), "nothing after the last tensor"
    return metadata, tensors


class Export(cli.CliTest):
    def export(self, *arguments):
        process = self.call("export", "--quiet", "--output", "x.safetensors", "--force", *arguments)
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual(process.out + process.err, "")
        return read(self.path("x.safetensors"))

    def test_parameters_are_a_state_dict_of_torchvision(self):
        _, tensors = self.export("--model", "resnet50")
        shapes = {name: shape for name, (shape, _) in tensors.items()}
        self.assertEqual(len(shapes), 161 + 3 * 53)
        for name, shape in {
            "conv1.weight": (64, 3, 7, 7), "bn1.weight": (64,), "bn1.running_var": (64,),
            "bn1.num_batches_tracked": (), "layer1.0.downsample.0.weight": (256, 64, 1, 1),
            "layer2.3.conv2.weight": (128, 128, 3, 3), "layer4.2.bn3.bias": (2048,),
            "fc.weight": (1000, 2048), "fc.bias": (1000,)}.items():
            self.assertEqual(shapes[name], shape, name)
        statistics = ("running_mean", "running_var", "num_batches_tracked")
        self.assertEqual(sum(math.prod(shape) for name, shape in shapes.items()
                             if not name.endswith(statistics)), 25557032)

    def test_initial_values(self):
        metadata, tensors = self.export("--model", "resnet18", "--zero-init", "--classes", "10")
        self.assertEqual(metadata["format"], "pt")
        self.assertEqual(json.loads(metadata["config"])["classes"], 10)
        values = {name: list(values) for name, (_, values) in tensors.items()
                  if len(values) < 100000}
        weights = values["layer1.0.conv1.weight"]
        deviation = math.sqrt(sum(weight * weight for weight in weights) / len(weights))
        self.assertAlmostEqual(deviation, math.sqrt(2 / (64 * 9)), delta=0.02 * deviation)
        self.assertEqual(set(values["bn1.weight"]), {1})
        self.assertEqual(set(values["layer3.1.bn2.weight"]), {0})
        self.assertEqual(set(values["layer3.1.bn2.running_var"]), {1})
        self.assertEqual(set(values["bn1.running_mean"]), {0})
        self.assertEqual(values["bn1.num_batches_tracked"], [0])
        self.assertLessEqual(max(map(abs, values["fc.bias"])), 1 / math.sqrt(512))

    def test_last_scales_may_start_small(self):
        _, tensors = self.export("--model", "resnet20", "--image-size", "32", "--last-scale", "0.25")
        for name, scale in (("layer3.1.bn2.weight", 0.25), ("layer3.1.bn1.weight", 1)):
            self.assertEqual(set(tensors[name][1]), {scale}, name)

    def test_the_first_step_is_that_of_run(self):
        metadata, tensors = self.export(*TINY, "--steps", "2", "--seed", "5")
        self.tiny("--steps", "3", "--seed", "5", "--output", "report.json")
        rank = self.report()["arms"][0]["runs"][0]["ranks"][0]
        self.assertAlmostEqual(tensors["loss"][1][0], rank["loss"][0], places=6)
        self.assertEqual(tensors["images"][0], (2, 3, 32, 32))
        self.assertTrue(all(0 <= label < 1000 for label in tensors["labels"][1]))
        self.assertIn("device_name", metadata)
        self.assertTrue(any("onednn" in name.lower() for name in metadata), metadata)

    def test_gradients_make_the_trained_parameters(self):
        metadata, tensors = self.export(*TINY, "--steps", "2", "--learning-rate", "0.125",
                                        "--weight-decay", "0.5", "--momentum", "0.25")
        for name in ("bn1.weight", "layer3.2.bn2.bias", "layer1.0.conv1.weight", "fc.bias"):
            start, first, second, trained = (
                tensors[prefix + name][1] for prefix in ("", "gradients.0.", "gradients.1.", "trained."))
            for w, g0, g1, after in zip(start, first, second, trained):
                momentum = g0 + 0.5 * w
                w -= 0.125 * momentum
                w -= 0.125 * (0.25 * momentum + g1 + 0.5 * w)
                self.assertAlmostEqual(after, w, delta=1e-6 * max(1, abs(w)))
        squares = sum(sum(value * value for value in values) for name, (_, values) in tensors.items()
                      if name.startswith("gradients.0."))
        norm = tensors["gradient_norm"][1][0]
        self.assertAlmostEqual(math.sqrt(squares), norm, delta=1e-4 * norm)
        # Probabilities less the one-hot label, which sum to 0.
        self.assertAlmostEqual(sum(tensors["gradients.0.fc.bias"][1]), 0, delta=1e-6)
        self.assertEqual(list(tensors["trained.bn1.num_batches_tracked"][1]), [2])
        self.assertNotEqual(list(tensors["trained.bn1.running_mean"][1]), [0] * 64)
        self.assertEqual(json.loads(metadata["config"])["momentum"], 0.25)

    def test_gradients_may_be_those_of_the_first_steps(self):
        _, every = self.export(*TINY, "--steps", "3")
        for count in (0, 2):
            _, tensors = self.export(*TINY, "--steps", "3", "--gradient-steps", str(count))
            written = {name for name in tensors if name.startswith("gradients.")}
            self.assertEqual(written, {name for name in every if name.startswith("gradients.")
                                       and int(name.split(".")[1]) < count})
            self.assertEqual(tensors["loss"], every["loss"])

    def test_inference_evaluates_the_trained_network_whatever_pins_its_training(self):
        self.tiny("--steps", "3", "--output", "plans.json")
        without_cache = TINY[:TINY.index("--plan-cache")] + TINY[TINY.index("--plan-cache") + 2:]
        _, tensors = self.export(*without_cache, "--steps", "1", "--inference", "--plans", "plans.json")
        shape, logits = tensors["logits"]
        self.assertEqual(shape, (2, 1000))
        self.assertTrue(all(map(math.isfinite, logits)))

    def test_inference_is_of_the_weights_that_training_left(self):
        """After one step the running statistics are the same whatever the rate: weights alone differ."""
        def logits(rate):
            _, tensors = self.export(*TINY, "--steps", "1", "--inference", "--learning-rate", rate)
            return tensors["logits"][1]

        still = logits("0")
        once, twice = ([after - before for after, before in zip(logits(rate), still)]
                       for rate in ("1e-4", "2e-4"))
        self.assertGreater(max(map(abs, once)), 1e-5 * max(map(abs, still)))
        ratio = sum(a * b for a, b in zip(once, twice)) / sum(a * a for a in once)
        self.assertAlmostEqual(ratio, 2, delta=0.1)

    def test_refusals(self):
        cases = [
            (["--batch", "4"], 2, "--batch would be for: add --steps"),
            (["--steps", "1", "--batch", "auto"], 2, "--batch auto is for run"),
            (["--steps", "0"], 2, "'0'"),
            (["--steps", "1", "--device", "cpu", "--gpu", "1"], 2, "--gpu"),
            (["--output", "-"], 2, "files alone"),
            (["--output", self.write("old", "precious")], 9, "--force replaces it"),
            (["--output", "none/x"], 9, "there is no folder none"),
            (["--last-scale", "2"], 2, "--last-scale"),
            (["--last-scale", "0.2", "--zero-init"], 2, "give one of them"),
            (["--last-scale", "0.2", "--model", "bert_tiny"], 2, "bert_tiny has none"),
            (["--gradient-steps", "0"], 2, "give --steps 0 or more, too"),
            (["--steps", "1", "--gradient-steps", "2"], 2, "give --steps 2 or more, too"),
            (["--forward-only"], 2, "unknown option '--forward-only'"),
            ([*TINY, "--steps", "9", "--learning-rate", "1e6"], 6, "is not finite"),
        ]
        for arguments, code, fragment in cases:
            with self.subTest(arguments=arguments):
                self.assert_refused(self.call("export", "--quiet", *arguments), code, fragment)
        self.assertEqual(os.listdir(self.folder), ["old"])

    def test_without_output_the_model_names_the_file(self):
        process = self.call("export", "--model", "resnet18")
        self.assertEqual((process.returncode, process.out), (0, ""))
        self.assertEqual(process.err, "exported: nearmetal-resnet18.safetensors\n")
        self.assertEqual(os.listdir(self.folder), ["nearmetal-resnet18.safetensors"])


if __name__ == "__main__":
    cli.main()
