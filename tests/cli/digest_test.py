"""run --digest, and compare --same-bits of what it leaves, in real runs on CPUs."""

import json
import subprocess

import cli

SMALL = ["--classes", "10", "--steps", "2", "--warmup", "1", "--digest", "--quiet"]


class Digest(cli.CliTest):
    def digests(self, name, *arguments):
        process = self.tiny(*SMALL, *arguments, "--output", name)
        self.assertEqual(process.returncode, 0, process.err)
        return self.report(name)["arms"][0]["runs"][0]["digests"]

    def compare(self, *arguments):
        return self.call("compare", *arguments, "--same-bits")

    def test_one_seed_gives_the_same_bits_and_another_others(self):
        first, again = self.digests("first.json"), self.digests("again.json")
        other = self.digests("other.json", "--seed", "2")
        self.assertEqual(first, again)
        self.assertEqual([step["step"] for step in first[0]["steps"]], [1, 2, 4, 8])
        for one, another in zip(first[0]["steps"], other[0]["steps"]):
            self.assertNotEqual(one["loss"], another["loss"])
            self.assertAlmostEqual(float.fromhex(one["loss"]), 2.3, delta=1, msg="ln(10)")
        same = self.compare("first.json", "again.json")
        self.assertEqual(same.returncode, 0, same.out + same.err)
        self.assertIn("bits: the same at steps 1, 2, 4, 8 (65 parameters)", same.out)
        differ = self.compare("first.json", "other.json", "--html", "page.html")
        self.assertEqual(differ.returncode, 1, differ.out + differ.err)
        self.assertIn("bits: differ from step 1 on: loss, conv1.weight", differ.out)
        self.assertIn("other seeds", " ".join(differ.out.split()))
        self.assertTrue(differ.out.rstrip().endswith("bits: differ (exit 1)"), differ.out)
        with open(self.path("page.html"), encoding="utf-8") as file:
            self.assertIn("bits: differ from step 1 on", file.read())

    def test_one_wrong_bit_is_found_and_other_kernels_are_not_asked(self):
        self.digests("right.json")
        report = self.report("right.json")
        digest = report["arms"][0]["runs"][0]["digests"][0]
        place = digest["parameters"].index("layer2.0.conv1.weight")
        for step in digest["steps"][2:]:
            step["sha256"][place] = "0" * 16
        self.write("wrong.json", json.dumps(report))
        wrong = self.compare("right.json", "wrong.json", "--json")
        self.assertEqual(wrong.returncode, 1, wrong.out + wrong.err)
        bits = json.loads(wrong.out)["bits"][0]
        self.assertEqual((bits["verdict"], bits["first_step"], bits["differing"]),
                         ("differ", 4, ["layer2.0.conv1.weight"]))
        digest["kernels"] = "1" * 64
        self.write("kernels.json", json.dumps(report))
        kernels = self.compare("right.json", "kernels.json", "--markdown")
        self.assertEqual(kernels.returncode, 4, kernels.out + kernels.err)
        self.assertIn("not asked for the same bits: other kernels were chosen", kernels.out)
        report["arms"][0]["runs"][0]["digests"] = []
        self.write("none.json", json.dumps(report))
        self.assert_refused(self.compare("right.json", "none.json"), 4, "--same-bits needs digests")
        digest["steps"][0]["sha256"].pop()
        report["arms"][0]["runs"][0]["digests"] = [digest]
        self.write("bad.json", json.dumps(report))
        self.assert_refused(self.call("validate", "bad.json"), 5, "another number of hashes")

    def test_two_ranks_agree_alone_and_together(self):
        alone = self.digests("alone.json")
        for update in ("independent", "allreduce"):
            command = cli.mpirun((2, [*SMALL, "--update", update, "--output",
                                      update + ".json"]))
            process = subprocess.run(command, cwd=self.folder, env=cli.clean_environment(), text=True,
                                     capture_output=True, timeout=cli.limit(100), check=False)
            self.assertEqual(process.returncode, 0, process.stderr)
            digests = self.report(update + ".json")["arms"][0]["runs"][0]["digests"]
            self.assertEqual([group["ranks"] for group in digests], [[0, 1]])
            if update == "independent":
                self.assertEqual(digests[0]["steps"], alone[0]["steps"])

    def test_plans_sweeps_and_reruns_keep_it(self):
        self.digests("first.json")
        flags = self.call("rerun", "first.json", "--flags")
        self.assertIn("--digest", flags.out.split())
        layout = self.write("layout.json", json.dumps({
            "hosts": [{"name": "localhost", "gpus": 0}],
            "workload": {"digest": True}, "layouts": [{"shape": "1x1x1"}]}))
        self.assertIn("--digest", self.call("plan", layout).out + self.call("plan", layout).err)

    def test_what_cannot_have_digests_is_refused(self):
        for arguments in (["--forward-only"], ["--inference"]):
            self.assert_refused(self.tiny("--digest", *arguments), 2, "--digest trains", *arguments)


if __name__ == "__main__":
    cli.main()
