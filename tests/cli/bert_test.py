"""BERT by the commands that compute, on the CPU with two layers and short sequences."""

import json

import cli
import consumers
import export_test

SMALL = ["--device", "cpu", "--model", "bert_tiny", "--sequence", "24", "--plan-cache", "off"]
QUICK = ["--batch", "2", "--warmup", "1", "--steps", "2", "--output", "report.json", "--force"]
LAYER = "bert.encoder.layer.1"


class Bert(cli.CliTest):
    def run_of(self, *arguments):
        process = self.call("run", *SMALL, *QUICK, *arguments)
        self.assertEqual(process.returncode, 0, process.out + process.err)
        return process.out, self.report()["arms"][0]["runs"][0]

    def test_it_learns_and_counts_sequences(self):
        out, run = self.run_of("--verify", "--accumulate", "3")
        self.assertIn("bert_tiny training, fp32, batch 3 x 2, sequence 24 on", out)
        self.assertIn("sequences/s", out)
        self.assertTrue(run["proof"]["verify"]["passed"])
        self.assertEqual(run["sample"], "sequence")
        self.assertEqual(run["window"]["sequences"], 2 * 3 * 2)
        self.assertGreater(run["throughput_sequences_per_second"], 0)
        config = self.report()["invocation"]["config"]
        self.assertEqual(config["optimizer"], {"value": "adamw", "origin": "default"})
        self.assertEqual(config["weight_decay"], {"value": 0.01, "origin": "default"})

    def test_what_it_answers_is_timed(self):
        out, run = self.run_of("--inference")
        self.assertIn("outputs        finite", out)
        self.assertTrue(run["proof"]["outputs_finite"])
        self.call("run", "--device", "cpu", "--model", "resnet20", *QUICK, "--output", "images.json")
        both = self.call("report", "report.json", "images.json", "--format", "go").out
        consumers.assert_benchmarks(self, both)
        kinds = [[settings.get(name) for name in ("model", "inference", "sequence", "classes")]
                 for _, settings, _ in consumers.benchmarks(both)]
        self.assertEqual(kinds, [["bert_tiny", "yes", "24", None], ["resnet20", None, None, "1000"]])

    def test_sequences_of_other_lengths_are_other_work(self):
        self.run_of()
        self.call("run", *SMALL, *QUICK, "--sequence", "32", "--output", "longer.json")
        process = self.call("compare", "report.json", "longer.json")
        self.assertEqual(process.returncode, 4, process.out + process.err)
        self.assertRegex(process.out + process.err, r"sequence +24")

    def test_layouts_are_refused_in_the_same_way(self):
        for workload, reason in (
                ({"model": "bert_tiny", "sequence": 7}, "/workload/sequence: --sequence must be"),
                ({"model": "bert_tiny", "sequence": None}, "/workload/sequence must be a text, a number"),
                ({"model": "bert_tiny", "image_size": 32}, "bert_tiny reads sequences"),
                ({"model": "bert_tiny", "momentum": 0.5}, "--momentum is for SGD"),
                ({"model": "resnet18", "sequence": 32}, "resnet18 reads images")):
            with self.subTest(workload=workload):
                layouts = {"workload": workload, "layouts": [
                    {"name": "one", "jobs": [{"instances": [{"host": "localhost"}]}]}]}
                self.write("l.json", json.dumps(layouts))
                self.assert_refused(self.call("plan", "l.json"), 2, "l.json: ", reason)

    def test_it_is_exported_by_the_names_of_hugging_face(self):
        process = self.call("export", *SMALL, "--batch", "2", "--steps", "1", "--inference",
                            "--output", "x")
        self.assertEqual(process.returncode, 0, process.err)
        metadata, tensors = export_test.read(self.path("x"))
        self.assertEqual(json.loads(metadata["config"])["sequence"], 24)
        for part in ("query", "key", "value"):
            name = f"{LAYER}.attention.self.{part}"
            self.assertEqual(tensors[f"{name}.weight"][0], (128, 128))
            self.assertEqual(tensors[f"gradients.0.{name}.weight"][0], (128, 128))
            self.assertEqual(set(tensors[f"{name}.bias"][1]), {0})
        self.assertFalse([name for name in tensors if "query_key_value" in name])
        self.assertEqual(tensors["bert.embeddings.word_embeddings.weight"][0], (30522, 128))
        self.assertEqual((tensors["tokens"][0], tensors["labels"][0]), ((2, 24), (2, 2)))
        self.assertTrue(all(1 <= token < 30522 for token in tensors["tokens"][1]))
        self.assertTrue(all(0 <= label < 24 for label in tensors["labels"][1]))
        self.assertEqual(tensors["logits"][0], (2, 24, 2))

    def test_of_its_tables_the_rows_of_the_tokens_alone_are_read(self):
        _, run = self.run_of("--profile")
        look_up, gradient = (entry for entry in run["profile"]["entries"]
                             if entry["name"] == "bert.embeddings")
        sample = 4 * 24 * 128  # bytes of 24 tokens
        self.assertEqual(look_up["bytes"], 2 * sample + sample + 2 * sample)  # words, positions, sum
        self.assertGreater(gradient["bytes"], 4 * 30522 * 128)  # of all words

    def test_its_kernels_are_timed_alone(self):
        process = self.call("micro", *SMALL, "--batch", "1", "--repetitions", "2", "--seconds", "0.01",
                            "^step/(forward|backward|update)/(bert.embeddings|adamw)$")
        self.assertEqual(process.returncode, 0, process.err)
        for name in ("forward/bert.embeddings", "backward/bert.embeddings", "update/adamw"):
            self.assertIn(f"step/{name}", process.out)

    def test_what_it_cannot_take_is_refused_with_the_reason(self):
        for length in ("0", "7", "513", "-24", "24.5", "many", "", "99999999999999999999"):
            process = self.call("run", *SMALL, "--sequence", length)
            self.assert_refused(process, 2, f"--sequence must be an integer from 8 to 512, not '{length}'")
        for options, reason in ((("--optimizer", "adam"), "did you mean 'adamw'?"),
                                (("--pipeline", "99"), "can be cut into 6 stages at most"),
                                (("--image-size", "32"), "bert_tiny reads sequences"),
                                (("--classes", "10"), "bert_tiny reads sequences"),
                                (("--momentum", "0.5"), "--momentum is for SGD"),
                                (("--precision", "bf16"), "fp32"),
                                (("--model", "resnet20"), "resnet20 reads images")):
            process = self.call("run", *SMALL, *options)
            self.assertEqual((process.returncode, process.out), (2, ""), process.err)
            self.assertIn(reason, process.err.splitlines()[-1])
        process = self.call("export", "--model", "resnet20", "--sequence", "24", "--output", "y")
        self.assertEqual(process.returncode, 2)
        self.assertIn("resnet20 reads images", process.err)


if __name__ == "__main__":
    cli.main()
