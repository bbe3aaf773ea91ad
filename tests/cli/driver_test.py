"""A driver that is older than the toolkit of the build, by a stand-in for its library."""

import json
import sys

import cli

FAKE_LIBCUDA = sys.argv.pop(2)


class OldDriver(cli.CliTest):
    def on(self, version, *arguments):
        environment = {**cli.clean_environment(), "LD_LIBRARY_PATH": FAKE_LIBCUDA,
                       "FAKE_CUDA_VERSION": str(version)}
        return self.call(*arguments, env=environment)

    def test_a_run_names_the_package(self):
        self.assert_refused(self.on(12020, "run", "--device", "cuda"), 8,
                            "the driver takes CUDA 12.2 at most", "or later",
                            "NVIDIA's package cuda-compat-1", "--device cpu does without")

    def test_doctor_says_what_to_do(self):
        document = json.loads(self.on(11080, "doctor", "--json").out)
        found = {finding["code"]: finding for finding in document["findings"]}
        self.assertIn("the driver takes CUDA 11.8 at most", found["driver_too_old"]["seen"])
        self.assertRegex(found["driver_too_old"]["fix"],
                         r"install driver \d+ or later, or, for a data-centre GPU with driver \d+")

    def test_a_driver_that_is_new_enough_is_not_the_reason(self):
        self.assert_refused(self.on(19000, "run", "--device", "cuda"), 8, "no CUDA-capable device")


if __name__ == "__main__":
    cli.main()
