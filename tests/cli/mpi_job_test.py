"""`nearmetal plan --format mpijob`: the manifest, its commands, and what it refuses."""

import os
import re
import shlex

import yaml

import cli
import consumers
import plans

POD = ["--image", "registry.example/nearmetal:1"]
JOB = ["2x1x2", "1x1x2", "--hosts", "2*2", "--repeats", "2", "--format", "mpijob", *POD]

# The fields of MPIJob, kubeflow.org/v2beta1, and of pods in it that are used here, with the type of
# each, as the operator's definition has them; [type] is a list. Servers drop what they do not know.
QUANTITIES = {"nvidia.com/gpu": int, "memory": str, "rdma/hca": int, "rdma/hca_shared_devices_a": int,
              "nvidia.com/rdma_nic1": int, "hugepages-2Mi": str, "hugepages-1Gi": str}
POD_SPEC = {
    "securityContext": {"fsGroup": int},
    "containers": [{"name": str, "image": str, "command": [str], "args": [str], "workingDir": str,
                    "volumeMounts": [{"name": str, "mountPath": str}],
                    "resources": {"limits": QUANTITIES, "requests": {"cpu": int}},
                    "securityContext": {"capabilities": {"add": [str]}}}],
    "volumes": [{"name": str, "emptyDir": {"medium": str},
                 "persistentVolumeClaim": {"claimName": str}}],
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"nearmetal.role": str}}, "topologyKey": str}]}},
}
REPLICAS = {"replicas": int,
            "template": {"metadata": {"labels": {"nearmetal.role": str}}, "spec": POD_SPEC}}
MPI_JOB = {
    "apiVersion": str, "kind": str, "metadata": {"name": str},
    "spec": {"slotsPerWorker": int, "launcherCreationPolicy": str, "sshAuthMountPath": str,
             "runPolicy": {"cleanPodPolicy": str, "backoffLimit": int,
                           "activeDeadlineSeconds": int},
             "mpiReplicaSpecs": {"Launcher": REPLICAS, "Worker": REPLICAS}},
}


def breaches(value, form, place=""):
    """Places of fields that the form does not know, or that have another type."""
    if isinstance(form, dict) and isinstance(value, dict):
        for key, member in value.items():
            yield from breaches(member, form[key], f"{place}/{key}") if key in form else [f"{place}/{key}"]
    elif isinstance(form, list) and isinstance(value, list):
        for item in value:
            yield from breaches(item, form[0], place + "[]")
    elif not isinstance(form, type) or type(value) is not form:
        yield place


def bytes_of(quantity):
    """Of a quantity of Kubernetes (apimachinery/pkg/api/resource/quantity.go)."""
    number, unit = re.fullmatch(r"([1-9]\d*)([KMGT]?i?)", str(quantity)).groups()
    return int(number) * (1024 if unit.endswith("i") else 1000) ** (" KMGT".find(unit[:1] or " "))


def unruly(container):
    """What the API server refuses of resources: ValidateResourceRequirements() and
    validateContainerResourceName() of pkg/apis/core/validation/validation.go."""
    resources = container.get("resources", {})
    limits = resources.get("limits", {})
    requests = {**limits, **resources.get("requests", {})}  # as defaulted (pkg/apis/core/v1/defaults.go)
    for name, quantity in requests.items():
        huge = name.startswith("hugepages-")
        if (huge or "/" in name) and limits.get(name) != quantity:
            yield f"{name}: requests and limits differ"
        if huge and bytes_of(quantity) % bytes_of(name.partition("-")[2]):
            yield f"{name}: no whole pages"
        if huge and not {"cpu", "memory"} & requests.keys():
            yield f"{name}: neither CPUs nor memory"
        if "/" in name and not isinstance(quantity, int):
            yield f"{name}: no integer"
        if name in limits and name in ("cpu", "memory") and bytes_of(quantity) > bytes_of(limits[name]):
            yield f"{name}: more is requested than allowed"


def expanded(text):
    """As Kubernetes does it with the arguments of a container, where no variable is defined."""
    return re.sub(r"\$\$", "$", text)


class MpiJob(plans.Plan):
    def manifest(self, *arguments):
        manifest = yaml.safe_load(self.plan(*arguments))
        self.assertEqual(list(breaches(manifest, MPI_JOB)), [])
        consumers.assert_pods(self, manifest)
        for replicas in manifest["spec"]["mpiReplicaSpecs"].values():
            (container,) = replicas["template"]["spec"]["containers"]
            self.assertEqual(list(unruly(container)), [])
        return manifest

    def pod(self, role, *arguments):
        return self.manifest(*JOB, *arguments)["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]

    def test_it_has_the_fields_of_its_definition(self):
        manifest = self.manifest(*JOB, "--rdma", "rdma/hca", "--memory", "64Gi",
                                 "--volume-claim", "reports")
        self.assertEqual((manifest["apiVersion"], manifest["kind"]),
                         ("kubeflow.org/v2beta1", "MPIJob"))
        spec = manifest["spec"]
        self.assertEqual(spec["slotsPerWorker"], 2)
        replicas = spec["mpiReplicaSpecs"]
        self.assertEqual((replicas["Launcher"]["replicas"], replicas["Worker"]["replicas"]), (1, 2))
        self.assertEqual(list(breaches({**manifest, "other": 1}, MPI_JOB)), ["/other"])

    def test_it_runs_the_commands_of_the_plan(self):
        jobs = self.jobs(*JOB[:2], "--hosts", "a.x:2,b.x:2")
        script = expanded(self.pod("Launcher")["containers"][0]["args"][0])
        for job in jobs:
            words = [word for word in job["command"] if not word.startswith("/opt/nearmetal")]
            # Hosts are the workers of the job there, and the program is that of the image.
            hosts = words.index("--host") + 1
            workers = [f"nearmetal-worker-{i}.nearmetal:2" for i in range(words[hosts].count(":2"))]
            words[hosts] = ",".join(workers)
            words = [word.replace("a.x:", "node0:").replace("b.x:", "node1:") for word in words]
            (arm,) = (word for word in words if word.startswith("--arm="))
            command = [line for line in script.splitlines() if f"{arm} " in line]
            self.assertEqual(len(command), 1, script)
            found = [word for word in command[0].split() if word not in ("nearmetal", "\\")]
            self.assertEqual(found[0], 'TMPDIR="$scratch/job1"')
            self.assertRegex(found[1], r'^NEARMETAL_LAST_REPORT=\$PWD/"[^"]*\.report\.json\.last"$')
            self.assertEqual(found[2:], ["setsid", *words])

    def test_workers_have_what_is_asked_for(self):
        def limits(*arguments):
            return self.pod("Worker", *arguments)["containers"][0]["resources"]["limits"]

        self.assertEqual(limits(), {"nvidia.com/gpu": 2})
        self.assertEqual(limits("--memory", "64Gi", "--rdma", "rdma/hca=4"),
                         {"nvidia.com/gpu": 2, "rdma/hca": 4, "memory": "64Gi"})
        worker = self.pod("Worker", "--rdma", "rdma/hca")["containers"][0]
        self.assertEqual(worker["resources"]["limits"]["rdma/hca"], 1)
        self.assertEqual(worker["securityContext"]["capabilities"]["add"], ["IPC_LOCK"])
        resources = self.pod("Worker", "--cpus", "48")["containers"][0]["resources"]
        self.assertEqual(resources, {"limits": {"nvidia.com/gpu": 2}, "requests": {"cpu": 48}})
        on_cpus = yaml.safe_load(self.plan("2x1x1", "--hosts", "a:0,b:0", "--format", "mpijob", *POD))
        worker = on_cpus["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        self.assertNotIn("resources", worker)

    def test_the_launcher_has_resources_of_its_own(self):
        launcher = self.pod("Launcher")["containers"][0]
        self.assertNotIn("resources", launcher)
        asked = ["--launcher-cpus", "2", "--launcher-memory", "1Gi"]
        resources = self.pod("Launcher", *asked)["containers"][0]["resources"]
        self.assertEqual(resources, {"limits": {"memory": "1Gi"}, "requests": {"cpu": 2}})
        worker = self.pod("Worker", *asked)["containers"][0]["resources"]
        self.assertEqual(worker, {"limits": {"nvidia.com/gpu": 2}})

    def test_huge_pages_come_with_a_volume_of_their_size(self):
        for pages, size, amount in (("2Mi=4Gi", "2Mi", "4Gi"), ("1Gi=2Gi", "1Gi", "2Gi")):
            pod = self.pod("Worker", "--hugepages", pages, "--memory", "64Gi")
            (container,) = pod["containers"]
            self.assertEqual(container["resources"]["limits"],
                             {"nvidia.com/gpu": 2, "memory": "64Gi", "hugepages-" + size: amount})
            volume = {"name": "huge-pages", "emptyDir": {"medium": "HugePages-" + size}}
            self.assertIn(volume, pod["volumes"])
            self.assertIn({"name": "huge-pages", "mountPath": "/dev/hugepages"}, container["volumeMounts"])
        self.pod("Worker", "--hugepages", "2Mi=4Mi", "--cpus", "8")
        self.assertEqual(list(unruly({"resources": {"limits": {"hugepages-2Mi": "3Mi"}}})),
                         ["hugepages-2Mi: no whole pages", "hugepages-2Mi: neither CPUs nor memory"])

    def test_rdma_may_be_several_resources(self):
        limits = self.pod("Worker", "--rdma", "rdma/hca=2,nvidia.com/rdma_nic1")["containers"][0]["resources"]["limits"]
        self.assertEqual(limits, {"nvidia.com/gpu": 2, "rdma/hca": 2, "nvidia.com/rdma_nic1": 1})

    def test_ranks_of_workers_may_take_ucx(self):
        script = self.pod("Launcher", "--mpi", "ucx")["containers"][0]["args"][0]
        self.assertIn("--mca pml ucx", script)

    def test_images_are_named_in_every_form(self):
        for image in ("nearmetal", "my/near__metal:1.2-a", "localhost:5000/a/b.c", "a@sha256:" + 64 * "0",
                      "Registry.example/a:1@sha256:" + 64 * "f"):
            self.assertEqual(self.pod("Worker", "--image", image)["containers"][0]["image"], image)

    def test_reports_go_to_the_volume(self):
        for arguments, volume in (([], {"name": "reports", "emptyDir": {}}),
                                  (["--volume-claim", "r.1"],
                                   {"name": "reports",
                                    "persistentVolumeClaim": {"claimName": "r.1"}})):
            pod = self.pod("Launcher", *arguments)
            container = pod["containers"][0]
            self.assertEqual(pod["volumes"], [volume])
            self.assertEqual(container["volumeMounts"][0]["mountPath"], container["workingDir"])
            self.assertEqual('mkdir "$folder"' in container["args"][0], bool(arguments))

    def test_two_jobs_have_names_and_workers_of_their_own(self):
        manifest = self.manifest(*JOB, "--job-name", "second-2")
        self.assertEqual(manifest["metadata"]["name"], "second-2")
        launcher = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
        script = launcher["containers"][0]["args"][0]
        self.assertIn(" second-2-worker-0.second-2:2,second-2-worker-1.second-2:2 ", script)
        self.assertNotIn("nearmetal-worker", script)

    def test_dollars_come_through_kubernetes(self):
        hosts = [{"name": "a", "gpus": 1}]
        for value in ("a$$b", "$(HOME)", "$$(HOME)", "$$$", "$"):
            path = self.write("a.json", plans.json.dumps({
                "hosts": hosts, "launcher": {"variables": {"VALUE": value}},
                "layouts": [{"shape": "1x1x1"}]}))
            manifest = self.manifest(path, "--format", "mpijob", *POD)
            launcher = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
            self.assertIn(f"'VALUE={value}'", expanded(launcher["containers"][0]["args"][0]))

    def test_the_command_of_the_page_writes_one(self):
        page = (plans.ROOT / "docs/clusters.md").read_text(encoding="utf-8")
        command = re.search(r"^nearmetal (plan [^>]*)> job.yaml$", page.replace("\\\n", ""), re.M)[1]
        self.assertEqual(self.manifest(*shlex.split(command)[1:])["spec"]["slotsPerWorker"], 8)

    def test_what_is_no_value_is_refused(self):
        for arguments, fragments in (
                (["--rdma", "hca"], ["--rdma", "rdma/hca_shared_devices_a", "'hca'"]),
                (["--rdma", "rdma/hca=0"], ["--rdma", "'rdma/hca=0'"]),
                *[(["--rdma", name], ["--rdma", f"'{name}'"])
                  for name in ("rdma/-hca", "-rdma/hca", "rdma..x/hca", "kubernetes.io/hca", "a.kubernetes.io/hca",
                               "requests.rdma/hca", "nvidia.com/gpu", "nvidia.com/gpu=2", "rdma/" + 64 * "a")],
                (["--hugepages", "2Mi", "--memory", "1Gi"], ["--hugepages", "2Mi=4Gi", "'2Mi'"]),
                (["--hugepages", "2M=4G", "--memory", "1Gi"], ["--hugepages", "'2M=4G'"]),
                (["--hugepages", "2Mi=4Gi"], ["--hugepages", "--memory or --cpus"]),
                (["--launcher-memory", "1 GB"], ["--launcher-memory", "'1 GB'"]),
                (["--rdma", "rdma/hca: 1\nx"], ["--rdma"]),
                (["--memory", "64 GB"], ["--memory", "64Gi", "'64 GB'"]),
                (["--memory", "0Gi"], ["--memory", "'0Gi'"]),
                (["--volume-claim", "Reports"], ["--volume-claim", "'Reports'"]),
                (["--volume-claim", "-r"], ["--volume-claim"]),
                (["--cpus", "0"], ["--cpus must be"]),
                (["--job-name", "Second"], ["--job-name", "'Second'"]),
                (["--job-name", "a" * 51], ["--job-name"]),
                *[(["--image", image], ["--image", "registry.example/nearmetal:1", f"'{image}'"])
                  for image in ("bad image", "Nearmetal", "nearmetal:", "a//b", "a:b:c/d", "")]):
            self.assert_refused(self.call("plan", *JOB, *arguments), 2, *fragments)
        for option in (["--rdma", "rdma/hca"], ["--memory", "1Gi"], ["--volume-claim", "r"],
                       ["--job-name", "j"], ["--cpus", "8"], ["--hugepages", "2Mi=4Gi"],
                       ["--launcher-cpus", "1"], ["--launcher-memory", "1Gi"], POD):
            self.assert_refused(self.call("plan", "1x1x1", "--hosts", "a:1", *option), 2,
                                option[0], "are for --format mpijob")
        self.assert_refused(self.call("plan", *JOB[:-2]), 2, "--format mpijob needs --image")
        self.assert_refused(self.call("plan", *JOB, "--output", self.folder), 9)
        self.assertFalse(os.listdir(self.folder))


if __name__ == "__main__":
    cli.main()
