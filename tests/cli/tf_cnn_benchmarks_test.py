"""Command lines of tf_cnn_benchmarks: what they ask for here, what is printed, and who reads that."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import cli

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tf_cnn_benchmarks.md").read_text(encoding="utf-8")

# The network and images of the other tests: a step of some milliseconds.
SMALL = ["--", "--model", "resnet20", "--image-size", "32", "--threads", "1", "--plan-cache", "off"]

COMMON = "--classes 1001 --precision"

# As they stand there, and nearmetal's command or why there is none.
PUBLIC = {
    "github.com/tensorflow/benchmarks, scripts/tf_cnn_benchmarks/README.md, first": (
        "--num_gpus=1 --batch_size=32 --model=resnet50 --variable_update=parameter_server",
        f"run --device cuda --model resnet50_v1 {COMMON} fp32 --batch 32 --steps 100"),
    "github.com/tensorflow/benchmarks, scripts/tf_cnn_benchmarks/README.md, second": (
        "--data_format=NCHW --batch_size=256 --model=resnet50 --optimizer=momentum "
        "--variable_update=replicated --nodistortions --gradient_repacking=8 --num_gpus=8 "
        "--num_epochs=90 --weight_decay=1e-4 --data_dir=/data --use_fp16 --train_dir=/ckpt",
        "--data_dir=/data: images are synthetic"),
    "github.com/tensorflow/benchmarks, pull request 63": (
        "--model=resnet50 --batch_size=64 --local_parameter_device=gpu",
        f"run --device cuda --model resnet50_v1 {COMMON} fp32 --batch 64 --steps 100"),
    "github.com/tensorflow/benchmarks, issue 201": (
        "--device=gpu --data_dir=/data/imagenet_tfrecord/train --data_name=imagenet "
        "--model=resnet50 --num_gpus=4 --batch_size=128 --use_fp16=True "
        "--local_parameter_device=gpu --variable_update=replicated --all_reduce_spec=nccl",
        "--data_dir=/data/imagenet_tfrecord/train: "),
    "github.com/horovod/horovod, docs/benchmarks.rst, first": (
        "--model resnet101 --batch_size 64 --variable_update horovod",
        f"run --device cuda --model resnet101_v1 {COMMON} fp32 --batch 64 --steps 100"),
    "github.com/horovod/horovod, docs/benchmarks.rst, second": (
        "--model resnet101 --batch_size 64 --variable_update horovod "
        "--data_dir /path/to/imagenet/tfrecords --data_name imagenet --num_batches=2000",
        "--data_dir=/path/to/imagenet/tfrecords: "),
    "github.com/horovod/horovod, issue 499": (
        "--model resnet101 --batch_size 64 --variable_update horovod --horovod_device cpu",
        "run --device cuda --model resnet101_v1 "),
    "github.com/horovod/horovod, issue 614": (
        "--model resnet101 -batch_size 64 --variable_update horovod --data_format=NHWC "
        "--device=cpu", f"run --device cpu --model resnet101_v1 {COMMON} fp32 --batch 64"),
    "github.com/kubeflow/mpi-operator, examples/v2beta1/tensorflow-benchmarks.yaml": (
        "--model=resnet101 --batch_size=64 --variable_update=horovod",
        f"run --device cuda --model resnet101_v1 {COMMON} fp32 --batch 64"),
    "github.com/kubeflow/mpi-operator, examples/v1/tensorflow-benchmarks/"
    "tensorflow-benchmarks-imagenet.yaml": (
        "--data_format=NCHW --batch_size=256 --model=resnet50 --optimizer=momentum "
        "--variable_update=horovod --nodistortions --gradient_repacking=8 --num_epochs=90 "
        "--weight_decay=1e-4 --data_dir=/efs/imagenet/train --use_fp16 "
        "--train_dir=/models/resnet50", "--data_dir=/efs/imagenet/train: "),
    "gist.github.com/jlebar/f3bb841f1d3e03ca7abe17b851fefec3, 8 GPUs": (
        "--batch_size=364 --num_batches=100 --model=resnet50 --optimizer=momentum "
        "--variable_update=replicated --all_reduce_spec=nccl --use_fp16=True --nodistortions "
        "--gradient_repacking=2 --compute_lr_on_cpu=True --single_l2_loss_op=True "
        "--xla_compile=True --num_gpus=8 --loss_type_to_report=base_loss",
        f"sweep 1x1x8 --repeats 1 --job-limit 240h --model resnet50_v1 {COMMON} fp16 --batch 364 --steps 100 "
        "--warmup 10 --momentum 0.9 --weight-decay 4e-5 --bucket-mib 25"),
    "gist.github.com/jlebar/f3bb841f1d3e03ca7abe17b851fefec3, 1 GPU": (
        "--batch_size=364 --num_batches=100 --model=resnet50 --optimizer=momentum "
        "--use_fp16=True --nodistortions --compute_lr_on_cpu=True --single_l2_loss_op=True "
        "--xla_compile=True --loss_type_to_report=base_loss",
        f"run --device cuda --model resnet50_v1 {COMMON} fp16 --batch 364 --steps 100 "
        "--warmup 10 --momentum 0.9"),
    "gist.github.com/nikAizuddin/238d773a6aa3a3b3ce2e7650b79f6908": (
        "--num_gpus=1 --batch_size=32 --model=resnet50 --use_fp16",
        f"run --device cuda --model resnet50_v1 {COMMON} fp16 --batch 32"),
    "github.com/bytedance/byteps, issue 29": (
        "--local_parameter_device=gpu --num_gpus=1 --num_batches=100 --num_warmup_batches=10 "
        "--variable_update=horovod --optimizer=sgd --batch_size=32 --model=resnet50 "
        "--horovod_device=cpu", f"run --device cuda --model resnet50_v1 {COMMON} fp32 --batch 32"),
    "github.com/yaomingamd/tensorflow-upstream, scripts/amd/benchmark.sh": (
        "--model=resnet50_v1.5 --xla_compile --use_fp16 --batch_size=256 "
        "--print_training_accuracy --num_batches=1 --num_gpus=8 --variable_update=replicated "
        "--all_reduce_spec=nccl",
        f"sweep 1x1x8 --repeats 1 --job-limit 240h --model resnet50 {COMMON} fp16 --batch 256 --steps 1"),
    "github.com/aime-team/tf1-benchmarks, README.md, for GPU": (
        "--model resnet50 --num_gpus=1 --xla --batch_size=64",
        f"run --device cuda --model resnet50_v1 {COMMON} fp32 --batch 64"),
    "github.com/aime-team/tf1-benchmarks, README.md, for CPU": (
        "--model resnet50 --device=cpu --data_format==NHWC --batch_size=8",
        "--data_format does not take '=NHWC'"),
    "github.com/ehejia/linux_setting, script/benchmark/tensorflow_banchmark.sh": (
        "--batch_size=64 --model=resnet50 --num_gpus=1 --num_epochs=100",
        f"run --device cuda --model resnet50_v1 {COMMON} fp32 --batch 64 --steps 2001824"),
    "github.com/kitstar/benchmarks, scripts/tf_cnn_benchmarks/run_local_gpu.sh": (
        "--variable_update=independent --data_format=NHWC --batch_size=128 --model=resnet50 "
        "--num_gpus=1 --num_batches=500 --forward_only=True --local_parameter_device=cpu "
        "--use_fp16=False",
        f"run --device cuda --model resnet50_v1 {COMMON} fp32 --batch 128 --inference --steps 500"),
    "github.com/converged-computing/jobspec-conversion, "
    "results/manual/parsed/tea1528/.../resnet50_cpu_benchmark.slurm-flux-batch.sh": (
        "--batch_size=32 --model=resnet50 --variable_update=parameter_server --device=cpu "
        "--data_format=NHWC", f"run --device cpu --model resnet50_v1 {COMMON} fp32 --batch 32"),
    "github.com/converged-computing/jobspec-conversion, "
    "results/manual/parsed/tea1528/.../resnet50_multiple_benchmark.slurm-flux-batch.sh": (
        "--num_gpus=3 --batch_size=32 --model=resnet50 --variable_update=parameter_server",
        f"sweep 1x1x3 --repeats 1 --job-limit 240h --model resnet50_v1 {COMMON} fp32 --batch 32"),
    "github.com/paperspace/benchmarks, README": (
        "--num_gpus=1 --model=resnet50 --variable_update=replicated --batch_size=32",
        f"run --device cuda --model resnet50_v1 {COMMON} fp32 --batch 32"),
    "github.com/kolinwei/paddle-benchmark, "
    "tensorflow_benchmark/distributed_replicated/ps_1_worker_4/start_worker1.sh": (
        "--local_parameter_device=gpu --num_gpus=8 --batch_size=64 --model=resnet50 "
        "--variable_update=distributed_replicated --job_name=worker --ps_hosts=127.0.0.1:5000 "
        "--worker_hosts=127.0.0.1:5001,127.0.0.2:5001 --task_index=1",
        "--job_name=worker: there are no servers"),
    "github.com/tensorflow/ngraph-bridge, "
    "test/model_level_tests/models/benchmarks/test2/core_run.sh": (
        "--model=densenet40_k12 --num_inter_threads=1 --batch_size=1 --data_format NHWC "
        "--num_batches 1000 --data_name=cifar10", "--model=densenet40_k12: "),
    "github.com/kubeflow/arena, docs/training/mpijob/distributed.md": (
        "--model resnet101 --batch_size 64 --variable_update horovod --train_dir=/training_logs "
        "--summary_verbosity=3 --save_summaries_steps=10",
        f"run --device cuda --model resnet101_v1 {COMMON} fp32 --batch 64 --steps 100"),
    "github.com/LambdaColdStorage/lambda-tensorflow-benchmark, benchmark.sh": (
        "--optimizer=sgd --model=resnet152 --num_gpus=2 --batch_size=64 "
        "--variable_update=replicated --distortions=false --num_batches=100 "
        "--data_name=imagenet --all_reduce_spec=nccl --use_fp16=True",
        f"sweep 1x1x2 --repeats 1 --job-limit 240h --model resnet152_v1 {COMMON} fp16 --batch 64 --steps 100"),
}

# The harnesses that read the output: a regular expression, and the group that has the figure.
HARNESSES = {
    "github.com/GoogleCloudPlatform/PerfKitBenchmarker, "
    "perfkitbenchmarker/linux_benchmarks/tensorflow_benchmark.py, _ExtractThroughput": (
        r"total images/sec: (\S+)", 1),
    "github.com/reframe-hpc/reframe, cscs-checks/apps/tensorflow/tf_horovod_check.py": (
        r"total images/sec:\s+(?P<throughput>\S+)", "throughput"),
    "github.com/sara-nl/Open-Benchmarking, remote_test/tensorflow/tensorflow-gpu.py": (
        r"[1][0][0]\simages\Ssec\S\s(?P<performance>\S+)", "performance"),
}

STEP_LINE = re.compile(
    r"^(\d+)\timages/sec: (\d+\.\d) \+/- (\d+\.\d) \(jitter = (\d+\.\d)\)\t(\d+\.\d{3})$", re.M)


class TfCnnBenchmarks(cli.CliTest):
    def flags(self, *words, **options):
        return self.call("tf_cnn_benchmarks", *words, **options)

    def trained(self, *words):
        process = self.flags(*words)
        self.assertEqual(process.returncode, 0, process.err)
        return process


class CommandLines(TfCnnBenchmarks):
    def test_public_ones_are_shown_as_ours_or_refused_with_the_reason(self):
        self.assertGreaterEqual(len(PUBLIC), 20)
        for place, (words, answer) in PUBLIC.items():
            with self.subTest(place):
                process = self.flags(*shlex.split(words), "--print")
                if answer.startswith("--"):
                    self.assert_refused(process, 2, answer)
                    continue
                self.assertEqual(process.returncode, 0, process.err)
                self.assertTrue(process.out.startswith("nearmetal " + answer), process.out)
                self.assertEqual(process.out.count("\n"), 1)
        self.assertEqual(os.listdir(self.folder), [])

    def test_what_has_no_effect_is_said_once(self):
        process = self.flags("--model=resnet50", "--xla", "--data_format=NCHW", "--print")
        self.assertEqual(process.err, "nearmetal: without effect here: --data_format, --xla "
                                      "(why: nearmetal help tf_cnn_benchmarks)\n")

    def test_spelling_is_that_of_absl(self):
        self.assert_refused(self.flags("--model=resnet50", "--use_fp16", "true"), 2,
                            "--use_fp16=true")
        self.assert_refused(self.flags("--modle=resnet50"), 2, "did you mean '--model'?")
        self.assert_refused(self.flags("--model=resnet50", "--batch_size=many"), 2,
                            "--batch_size must be an integer, not 'many'")
        self.assertIn("--precision fp32",
                      self.flags("-model", "resnet50", "--nouse_fp16", "--print").out)

    def test_refusals_name_the_flags(self):
        for flag, words in (("--num_batches", ["--num_batches=0"]),
                            ("--init_learning_rate", ["--init_learning_rate=-1"]),
                            ("--num_batches", ["--num_batches=0", "--num_gpus=2"])):
            process = self.flags("--model=resnet50", "--device=cpu", *words)
            self.assert_refused(process, 2, flag + " must be ")

    def test_options_of_ours_are_refused_as_they_are_by_run(self):
        self.assert_refused(self.flags("--model=resnet50", "--print", "--", "--precise"), 2,
                            "unknown option '--precise'")

    def test_several_gpus_are_not_replaced_by_cpus(self):
        if shutil.which("nvidia-smi"):
            self.skipTest("there may be GPUs")
        self.assert_refused(self.flags("--model=resnet50", "--num_gpus=2"), 8, "--device=cpu")


class Output(TfCnnBenchmarks):
    """Three of the public command lines, each at batch 2 on the CPU."""

    def figures(self, text):
        total = re.search(r"(?m)^total images/sec: (\d+\.\d\d)$", text)
        self.assertTrue(total, text)
        return STEP_LINE.findall(text), float(total[1])

    def test_harnesses_find_their_figures(self):
        words = shlex.split(PUBLIC["github.com/tensorflow/benchmarks, pull request 63"][0])
        process = self.trained(*words, "--device=cpu", "--batch_size=2", "--num_warmup_batches=1",
                               *SMALL, "--output", "r.json")
        report = self.report("r.json")
        run = report["arms"][0]["runs"][0]
        for place, (pattern, group) in HARNESSES.items():
            with self.subTest(place):
                found = re.search(pattern, process.out)
                self.assertTrue(found, process.out)
                self.assertAlmostEqual(float(found[group]), run["throughput_images_per_second"],
                                       delta=0.06)
        steps, total = self.figures(process.out)
        self.assertEqual([int(step[0]) for step in steps], [1, *range(10, 101, 10)])
        self.assertAlmostEqual(total, run["throughput_images_per_second"], delta=0.005)
        first = run["window"]["first_step"]
        self.assertAlmostEqual(float(steps[0][1]), 2 / run["ranks"][0]["step_seconds"][first],
                               delta=0.06)
        self.assertAlmostEqual(float(steps[-1][4]), run["ranks"][0]["loss"][first + 99], delta=6e-4)
        self.assertEqual(report["invocation"]["argv"][1], "tf_cnn_benchmarks")

        again = self.call("report", "r.json", "--format", "tf_cnn_benchmarks")
        self.assertEqual((again.returncode, again.out), (0, process.out), again.err)
        imported = self.call("import", "tf_cnn_benchmarks", self.write("log", process.out))
        self.assertEqual(imported.returncode, 0, imported.err)
        self.assertAlmostEqual(
            json.loads(imported.out)["arms"][0]["imported"][0]["throughput_images_per_second"],
            total)

    @cli.unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
    def test_several_gpus_are_ranks_that_it_starts(self):
        words = shlex.split(PUBLIC["github.com/converged-computing/jobspec-conversion, results/"
                                   "manual/parsed/tea1528/.../resnet50_multiple_benchmark."
                                   "slurm-flux-batch.sh"][0])
        process = self.trained(*words, "--device=cpu", "--batch_size=2", "--num_gpus=2",
                               "--num_batches=2", "--num_warmup_batches=1", "--display_every=1",
                               *SMALL, "--output", "r.json")
        steps, total = self.figures(process.out)
        self.assertEqual([step[0] for step in steps], ["1", "2"])
        run = self.report("r.json")["arms"][0]["runs"][0]
        self.assertEqual(run["world_size"], 2)
        self.assertAlmostEqual(total, run["throughput_images_per_second"], delta=0.005)
        self.assertIn("Batch size:  4 global\n             2 per device\n", process.out)
        again = self.call("report", "r.json", "--format", "tf_cnn_benchmarks")
        self.assertEqual(again.out, process.out)
        self.assertEqual(os.listdir(self.folder), ["r.json"])

    @cli.unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
    def test_under_mpirun_each_process_is_a_rank_and_one_prints(self):
        words = shlex.split(PUBLIC["github.com/kubeflow/mpi-operator, examples/v2beta1/"
                                   "tensorflow-benchmarks.yaml"][0])
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", cli.EXECUTABLE,
                   "tf_cnn_benchmarks", *words, "--device=cpu", "--mkl=True", "--batch_size=2",
                   "--num_batches=2", "--num_warmup_batches=1", *SMALL, "--output", "r.json"]
        process = subprocess.run(command, cwd=self.folder, env=cli.clean_environment(),
                                 capture_output=True, text=True, timeout=cli.limit(60), check=False)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.figures(process.stdout)
        self.assertEqual(process.stdout.count("total images/sec"), 1)
        self.assertEqual(process.stderr.count("without effect here: --mkl"), 1, process.stderr)
        self.assertEqual(self.report("r.json")["arms"][0]["runs"][0]["world_size"], 2)


class Page(TfCnnBenchmarks):
    def test_its_table_is_that_of_the_program(self):
        self.assertIn(self.call("generate", "tf_cnn_benchmarks").out, PAGE,
                      "write the output of `nearmetal generate tf_cnn_benchmarks` into the page")

    def test_its_commands_are_taken(self):
        lines = re.findall(r"(?m)^nearmetal tf_cnn_benchmarks (.*?)(?: +#.*)?$", PAGE)
        self.assertGreaterEqual(len(lines), 3)
        for line in lines:
            process = self.flags("--print", *shlex.split(line))
            self.assertEqual(process.returncode, 0, line + "\n" + process.err)


if __name__ == "__main__":
    cli.main()
