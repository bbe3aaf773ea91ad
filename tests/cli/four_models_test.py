"""The shipped layouts of four models at once, really run: on this machine's CPUs, small."""

import re

import cli


class FourModels(cli.CliTest):
    def test_the_shipped_layouts_run_without_a_gpu(self):
        hosts = self.write("hosts", "localhost slots=0\n")
        process = self.call("sweep", "four_models", "--hosts", hosts, "--image-size", "32",
                            "--classes", "10", "--batch", "2", "--duration", "0.5", "--warmup", "1",
                            "--threads", "1", "--repeats", "1", "--output", "s.json")
        self.assertEqual(process.returncode, 0, process.err)
        arms = {arm["name"]: arm for arm in self.report("s.json")["arms"]}
        self.assertEqual(len(arms), 9)
        self.assertEqual({name for name, arm in arms.items() if arm["unsupported"]},
                         {"four models, MPS", "four models, MPS 25 percent",
                          "four models, SMs 25 percent"})
        jobs = re.findall(r"four models, time slices +(\d) +(\S+ \S+),", process.out)
        self.assertEqual(jobs, [("1", "resnet50 training"), ("2", "resnet18 training"),
                                ("3", "vgg16 training"), ("4", "resnet50 inference")])


if __name__ == "__main__":
    cli.main()
