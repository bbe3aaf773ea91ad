"""run --digest, in real runs on CPUs."""

import json
import subprocess

import cli

SMALL = ["--classes", "10", "--steps", "2", "--warmup", "1", "--digest", "--quiet"]


class Digest(cli.CliTest):
    def digests(self, name, *arguments):
        process = self.tiny(*SMALL, *arguments, "--output", name)
        self.assertEqual(process.returncode, 0, process.err)
        return self.report(name)["arms"][0]["runs"][0]["digests"]

    def test_one_seed_gives_the_same_bits_and_another_others(self):
        first, again = self.digests("first.json"), self.digests("again.json")
        other = self.digests("other.json", "--seed", "2")
        self.assertEqual(first, again)
        self.assertEqual([step["step"] for step in first[0]["steps"]], [1, 2, 4, 8])
        for one, another in zip(first[0]["steps"], other[0]["steps"]):
            self.assertNotEqual(one["loss"], another["loss"])
            self.assertAlmostEqual(float.fromhex(one["loss"]), 2.3, delta=1, msg="ln(10)")

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
