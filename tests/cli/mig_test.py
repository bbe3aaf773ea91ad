"""MIG on machines whose NVML is a stand-in: what is planned, and what is refused."""

import json
import unittest

import cli
from mig import BALANCED, OFF, SEVEN, TRAINS_ON_CPUS, Mig, mig_job, uuid


class Planned(Mig):
    def test_jobs_are_given_the_devices_that_are_there(self):
        path = self.layouts({"name": "both", "jobs": [mig_job(), mig_job(profile="2g.35gb")]})
        ranks = [job["ranks"][0] for job in self.plan(BALANCED, path)["layouts"][0]["jobs"]]
        self.assertEqual([rank["mig"]["profile"] for rank in ranks], ["3g.71gb", "2g.35gb"])
        self.assertEqual([rank["variables"]["CUDA_VISIBLE_DEVICES"] for rank in ranks],
                         [uuid(0), uuid(1)])
        self.assertEqual([rank["visible_gpu"] for rank in ranks], [0, 0])

    def test_fractions_take_even_devices_and_say_what_needs_a_whole_gpu(self):
        plan = self.plan(SEVEN, "--fractions", "4", "--hosts", "localhost:1")
        self.assertEqual([(layout["name"], len(layout["jobs"])) for layout in plan["layouts"]],
                         [("4 jobs, MIG 1g.18gb", 4), ("alone, MIG 1g.18gb", 1)])
        job = plan["layouts"][0]["jobs"][3]["command"]
        for word in ("--expect-mig=1g.18gb", "--expect-uuid=" + uuid(3), "--sharers=4"):
            self.assertIn(word, job)
        reasons = {one["name"]: one["reason"] for one in plan["unsupported"]}
        self.assertIn("nvidia-smi -i 0 -mig 0", reasons["4 jobs, serial"])
        self.assertIn("MIG is on", reasons["alone"])

    def test_devices_of_unknown_profiles_are_named(self):
        plan = self.plan("constructed_mig", "--fractions", "2", "--hosts", "localhost:1")
        self.assertEqual([layout["name"] for layout in plan["layouts"]],
                         [f"2 jobs, MIG {uuid(1)} + {uuid(2)}", f"alone, MIG {uuid(1)}",
                          f"alone, MIG {uuid(2)}"])

    def test_neighbours_disturb_from_devices_of_their_own(self):
        plan = self.plan(SEVEN, "--fractions", "3", "--neighbours", "copy", "--hosts",
                         "localhost:1")
        self.assertEqual([layout["name"] for layout in plan["layouts"]],
                         ["1 job, 2 copy, MIG 1g.18gb", "alone, MIG 1g.18gb"])
        trains, disturbs, _ = plan["layouts"][0]["jobs"]
        self.assertIn("--expect-uuid=" + uuid(0), trains["command"])
        self.assertIn("CUDA_VISIBLE_DEVICES=" + uuid(1), disturbs["command"])
        self.assertFalse([word for word in disturbs["command"] if word.startswith("--expect-")])

    def test_fractions_without_mig_say_what_an_administrator_runs(self):
        plan = self.plan(OFF, "--fractions", "4", "--hosts", "localhost:2")
        reasons = {one["name"]: one["reason"] for one in plan["unsupported"]}
        self.assertIn("nvidia-smi -i 0 -mig 1, then nvidia-smi mig -i 0 -cgi "
                      "1g.35gb,1g.35gb,1g.35gb,1g.35gb -C", reasons["4 jobs, MIG"])
        self.assertIn("4 jobs, serial", [layout["name"] for layout in plan["layouts"]])

    def test_of_other_hosts_devices_are_listed_or_named(self):
        job = {"instances": [{"host": "vm9", "gpus": [0]}], "share": {"way": "mig"}}
        document = {"hosts": [{"name": "vm9", "gpus": 1}],
                    "layouts": [{"name": "there", "jobs": [job]}]}
        path = self.write("a.json", json.dumps(document))
        self.assert_refused(self.on(BALANCED, "plan", path), 2, path, "vm9", "list its MIG devices")
        job["share"]["instance"] = uuid(1)
        path = self.write("a.json", json.dumps(document))
        rank = self.plan(BALANCED, path)["layouts"][0]["jobs"][0]["ranks"][0]
        self.assertEqual(rank["mig"], {"uuid": uuid(1), "profile": ""})


class Refused(Mig):
    def test_what_is_not_there_is_not_supported(self):
        path = self.layouts({"name": "x", "jobs": [mig_job(profile="1g.18gb")] * 2})
        for command in ("plan", "sweep"):
            self.assert_refused(self.on(OFF, command, path), 8, path + ": /layouts/0/jobs/0/share",
                                "MIG is off", "nvidia-smi -i 0 -mig 1, then nvidia-smi mig -i 0 "
                                "-cgi 1g.18gb,1g.18gb -C")
        path = self.layouts({"name": "x", "jobs": [mig_job(profile="3g.71gb")] * 2})
        self.assert_refused(self.on(BALANCED, "plan", path), 8, "no MIG device 3g.71gb",
                            "nvidia-smi mig -i 0 -cgi 3g.71gb -C")
        self.assert_refused(self.call("sweep", path), 8, path, "NVML")
        self.assert_refused(self.on(SEVEN, "plan", "--fractions", "8", "--hosts", "localhost:1"), 8,
                            "no 8 MIG devices")

    def test_where_mig_is_not_supported_no_command_is_named(self):
        path = self.layouts({"name": "x", "jobs": [mig_job()]})
        process = self.on("constructed_vgpu", "plan", path)
        self.assert_refused(process, 8, "it is a vGPU")
        self.assertNotIn("nvidia-smi", process.err)

    def test_a_profile_that_the_gpu_has_not_is_wrong(self):
        path = self.layouts({"name": "x", "jobs": [mig_job(profile="1g.6gb")]})
        self.assert_refused(self.on(SEVEN, "plan", path), 2, path,
                            "no profile 1g.6gb on an NVIDIA H200; it has 1g.18gb, ")

    def test_a_list_that_is_not_true_here_starts_nothing(self):
        listed = [{"gpu": 0, "uuid": uuid(9), "profile": "1g.18gb"}]
        path = self.layouts({"name": "x", "jobs": [mig_job(profile="1g.18gb")]}, mig=listed)
        self.plan(OFF, path)
        self.assert_refused(self.on(SEVEN, "sweep", path), 8, path, uuid(9), "others that would do")
        self.assert_refused(self.on(OFF, "sweep", path), 8, path, "nvidia-smi -i 0 -mig 1")
        path = self.layouts({"name": "x", "jobs": [mig_job(instance=uuid(9))]}, mig=listed)
        self.assert_refused(self.on(OFF, "sweep", path), 8, path, "-cgi 1g.18gb -C")
        listed[0]["uuid"], listed[0]["profile"] = uuid(0), "2g.35gb"
        path = self.layouts({"name": "x", "jobs": [mig_job()]}, mig=listed)
        self.assert_refused(self.on(SEVEN, "sweep", path), 8, "has no MIG device 2g.35gb")

    def test_of_several_hosts_those_elsewhere_are_not_asked_for(self):
        hosts = [{"name": name, "gpus": 1, "mig": [{"gpu": 0, "uuid": one, "profile": "1g.18gb"}]}
                 for name, one in (("vm9", uuid(3)), ("localhost", uuid(9)))]
        job = mig_job(profile="1g.18gb")
        other = {**job, "instances": [{"host": "vm9", "gpus": [0]}]}
        path = self.write("a.json", json.dumps(
            {"hosts": hosts, "layouts": [{"name": "x", "jobs": [other, job]}]}))
        self.assert_refused(self.on(SEVEN, "sweep", path), 8, path, uuid(9), "others that would do")
        self.assert_refused(self.on(OFF, "sweep", path), 8, path, uuid(9), "/layouts/0/jobs/1/share",
                            "nvidia-smi -i 0 -mig 1")

    def test_other_ways_want_a_whole_gpu(self):
        for way, jobs in (("alone", 1), ("serial", 2), ("timeslice", 2), ("mps", 2)):
            with self.subTest(way=way):
                job = {**mig_job(), "share": {"way": way}}
                path = self.layouts({"name": "x", "jobs": [job] * jobs})
                self.plan(SEVEN, path)
                self.assert_refused(self.on(SEVEN, "sweep", path), 8,
                                    path + ": /layouts/0: GPU 0: MIG is on",
                                    "no whole GPU", "nvidia-smi -i 0 -mig 0")

    def test_a_script_holds_nothing_against_the_gpus(self):
        listed = [{"gpu": 0, "uuid": uuid(0), "profile": "1g.18gb"}]
        layout = {"name": "x", "jobs": [mig_job()], "expect": {"mig_config": "config.yaml#mixed"}}
        path = self.layouts(layout, mig=listed)
        for form in (("sh",), ("slurm",), ("mpijob", "--image", "registry/nearmetal:1")):
            self.assert_refused(self.on(SEVEN, "plan", path, "--format", *form), 2,
                                path + ": /layouts/0/expect/mig_config", "nearmetal sweep")

    def test_shares_of_other_ways_name_the_file_too(self):
        job = {"instances": [{"host": "vm9", "gpus": [0]}], "share": {"way": "mps"}}
        path = self.write("a.json", json.dumps({"hosts": [{"name": "vm9", "gpus": 1}],
                                                "layouts": [{"name": "x", "jobs": [job]}]}))
        self.assert_refused(self.on(OFF, "sweep", path), 2, path + ": /layouts/0: ", "MPS daemon")

    def test_expectations_of_run_are_checked(self):
        for option, wrong in (("--expect-mig", "small"), ("--expect-vgpu", "1g.18gb")):
            self.assert_refused(self.call("run", option, wrong), 2, option, "such as")

    @unittest.skipUnless(TRAINS_ON_CPUS, "this build has no CPU backend")
    def test_ranks_on_cpus_are_not_what_is_expected(self):
        for option, text in (("--expect-mig", "1g.18gb"), ("--expect-vgpu", "A100-40C"),
                             ("--expect-uuid", "GPU-1")):
            self.assert_refused(self.tiny("--steps", "1", "--quiet", option, text), 10, option,
                                "on CPUs")


# In place of mpirun: notes the device and the expectations of its rank, which then trains on a CPU
# (where a job is told to fail, with them).


if __name__ == "__main__":
    cli.main()
