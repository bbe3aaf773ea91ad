"""Logs in the forms of several writers and versions, and files of other kinds."""

import json
import os

import cli
from imports import PREFIXES, REPORT, ImportTest


class Forms(ImportTest):
    def test_tf_cnn_benchmarks_of_several_writers(self):
        # print_info() of benchmark_cnn.py in 1.8, 1.15 and 2.x, as Azure's BatchAI kept it (tabs
        # became blanks), as `while read line; do echo $line; done` of a collection did, and as a pod had it.
        batch_ai = ("TensorFlow:  1.8\nModel:       resnet101\nDataset:     imagenet (synthetic)\n"
                    "Mode:        training\nSingleSess:  False\nBatch size:  512 global\n             64 per device\n"
                    "Num batches: 100\nNum epochs:  0.04\nDevices:     [" +
                    ", ".join(f"'horovod/gpu:{gpu}'" for gpu in range(8)) + "]\nData format: NCHW\n"
                    "Layout optimizer: False\nOptimizer:   sgd\nVariables:   horovod\n==========\n"
                    "Step    Img/sec total_loss\n100     images/sec: 28.4 +/- 0.0 (jitter = 0.2) 8.030\n"
                    "total images/sec: 227.31\n")
        collection = ("2020-11-02 00:09:58.280136: I tensorflow/compiler/xla/service/service.cc:176]   StreamExecutor "
                      "device (0): Host, Default Version\nname: GeForce RTX 3080 major: 8 minor: 6\n"
                      "TensorFlow:  1.15\nModel:       vgg16\nDataset:     imagenet\nMode:        forward only\n"
                      "SingleSess:  False\nBatch size:  96 global\n96 per device\nNum batches: 100\nNum epochs:  0.01\n"
                      "Devices:     ['/gpu:0']\nNUMA bind:   False\nData format: NCHW\nOptimizer:   sgd\n"
                      "Variables:   replicated\nAllReduce:   nccl\n==========\n"
                      "100\timages/sec: 812.5 +/- 0.6 (jitter = 3.1)\t0.000\ntotal images/sec: 811.90\n")
        pod = ("Model:       trivial\nDataset:     imagenet (synthetic)\nMode:        training\nSingleSess:  False\n"
               "Batch size:  4096 global\n             1024.0 per device\n             2 batches per prepocessing group\n"
               "Devices:     ['/job:worker/replica:0/task:0/gpu:0']\nVariables:   parameter_server\nSync:        False\n"
               "80\timages/sec: 120.5 +/- 2.0 (jitter = 10.3)\tnan\ntotal images/sec: 482.30\n")
        arms = [self.imported("tf_cnn_benchmarks", self.write("writer.log", text))["arms"][0]
                for text in (batch_ai, collection, pod)]
        self.assertEqual([(arm["name"], arm["imported"][0]["throughput_images_per_second"]) for arm in arms], [
            ("resnet101, 8 GPUs", 227.31), ("vgg16 inference, 1 GPU", 811.9), ("trivial, 4 GPUs", 482.3)])
        for text, line in ((batch_ai, 18), (collection, 20), (pod, 12)):
            contrary = text.replace("total images/sec: ", "total images/sec: 1")
            self.assert_log_stops("tf_cnn_benchmarks", contrary, line, "but the steps to line")
        self.assert_log_stops("tf_cnn_benchmarks", batch_ai.replace("total images", "rank 0: total images"), 18,
                              "must begin the line")

    def test_ranks_of_horovod_are_one_run(self):
        horovod = self.text_of("tf_cnn_benchmarks.log").replace("parameter_server", "horovod").replace(
            "['/gpu:0', '/gpu:1']", "['horovod/gpu:0', 'horovod/gpu:1']")
        horovod = horovod.replace("images/sec: 62", "images/sec: 31").replace("sec: 310.52", "sec: 620.52")
        both = [line for line in horovod.splitlines(True) for _ in range(2)]
        half = horovod.splitlines(True)[:16]
        fused = "".join(both).replace("Num batches: 100\n", "Num batches: 100", 1)
        for text in ("".join(both), 2 * "".join(half) + "".join(both[32:]), fused, horovod):
            run, = self.imported("tf_cnn_benchmarks", self.write("ranks.log", text))["arms"][0]["imported"]
            self.assertEqual((run["throughput_images_per_second"], run["world_size"]), (620.52, 2))
        near = "".join(both).replace("620.52", "620.54", 1)
        run, = self.imported("tf_cnn_benchmarks", self.write("ranks.log", near))["arms"][0]["imported"]
        self.assertAlmostEqual(run["throughput_images_per_second"], 620.53)
        self.assertEqual(run["facts"]["totals"], "2 ranks, 620.52 to 620.54")
        runs = self.imported("tf_cnn_benchmarks", self.write("twice.log", 2 * "".join(both)))
        self.assertEqual(len(runs["arms"][0]["imported"]), 2)
        self.assert_log_stops("tf_cnn_benchmarks", "".join(both).replace("620.52", "700.52", 1), 47,
                              "700.52, but on line 48 620.52")
        self.assert_log_stops("tf_cnn_benchmarks", "".join(both[:32]) + "".join(both), 35, "comes again")

    def test_epochs_blocks_and_the_length_of_a_run_must_agree(self):
        def log(epoch, block, *, throughput=None, benchmark="resnet", trained=None):
            """Four blocks of two epochs, in s; evaluations of 5 s within blocks."""
            now, lines = 1.6e12, [("submission_benchmark", benchmark, {}), ("global_batch_size", 100, {}),
                                  ("run_start", None, {})]
            lines.append(("train_samples", 100000, {}))
            for number in range(4):
                start = now
                lines.append((now, "block_start", {"first_epoch_num": 2 * number + 1, "epoch_count": 2}))
                for number_of in (2 * number + 1, 2 * number + 2) if epoch else ():
                    lines.append((now, "epoch_start", {"epoch_num": number_of}))
                    now += 1e3 * epoch
                    lines.append((now, "epoch_stop", {"epoch_num": number_of}))
                    if throughput:
                        lines.append(("tracked_stats", {"throughput": throughput}, {}))
                now = start + 1e3 * block
                lines += [(now, "eval_start", {}), (now + 5e3, "eval_stop", {})]
                now += 5e3
                lines.append((now, "block_stop", {"first_epoch_num": 2 * number + 1}))
            lines.append((now, "run_stop", {"status": "success"}))
            if trained:  # told after run_stop, as in round 4
                lines = [line for line in lines if line[0] != "train_samples"]
                lines += [("train_samples", trained, {}), ("tracked_stats", {"throughput": throughput}, {})]
            text, time = "", 1.6e12
            for first, second, metadata in lines:
                if isinstance(first, str):
                    key, value = first, second
                else:
                    time, key, value = first, second, None
                text += ":::MLLOG " + json.dumps({"namespace": "", "time_ms": int(time), "event_type": "X",
                                                  "key": key, "value": value, "metadata": metadata}) + "\n"
            return text

        def figure(text):
            run, = self.imported("mlperf", self.write("result.txt", text))["arms"][0]["imported"]
            return (run.get("throughput_images_per_second") or run["throughput_sequences_per_second"],
                    run["facts"]["throughput_from"])
        self.assertEqual(figure(log(50, 100)), (2000, "epochs"))
        self.assertEqual(figure(log(0.5, 100)), (2000, "blocks"))  # queued, and not awaited
        self.assertEqual(figure(log(None, 100)), (2000, "blocks"))
        self.assertEqual(figure(log(None, 100, throughput=1990, benchmark="bert", trained=800000)),
                         (1990, "tracked_stats"))
        stops = lambda *rest: self.assert_log_stops("mlperf", *rest)
        stops(log(None, 100, throughput=9000, benchmark="ssd", trained=800000), 1, "is ssd: import reads")
        self.assertEqual(figure(log(None, 100, throughput=9000, benchmark="bert", trained=800000)),
                         (2000, "blocks"))
        stops(log(0.5, 100).replace("block_", "blok_"), 37, "by its epochs", "200000", "by its length 1752")

    def test_facts_of_the_system_tell_runs_apart(self):
        text = self.text_of("mlperf_result.txt")
        system = (':::SYSJSON {"submitter": "Example", "system_name": "x", "number_of_nodes": "2", '
                  '"accelerators_per_node": "8", "accelerator_model_name": "NVIDIA H100-SXM5-80GB"}\n')
        files = [self.write("a.txt", system + text),
                 self.write("b.txt", "+ echo ':::SYSJSON {}'\n" + text.replace("8 GPU server", "B")),
                 self.write("c.txt", text.replace("8 GPU server", "B").replace("3264", "1632"))]
        process = self.call("import", "mlperf", *files)
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual([arm["name"] for arm in json.loads(process.out)["arms"]],
                         ["resnet, 16 GPUs, Example 8 GPU server", "resnet, Example B, global_batch_size 3264",
                          "resnet, Example B, global_batch_size 1632"])

    def test_tables_of_all_versions_of_nccl_tests(self):
        gpus = "".join(f"#  Rank {rank:2} Group  0 Pid   1201 on       host device {rank:2} [{bus}] {name}\n"
                       for rank, (bus, name) in enumerate(
                           [("0x07", "NVIDIA A100")] * 11 + [("000f:01:00", "NVIDIA H100 80GB HBM3")]))
        # Columns of print_header() in broadcast.cu and all_gather.cu of 2019, of common.cu of 2022, and of
        # util.cu of 2026 with and without -I 1 and time stamps.
        figures = "  721.4  186.05  {}"
        tables = {
            "broadcast": ("type    root     time   algbw   busbw  error     time   algbw   busbw  error",
                          "float       0" + 2 * (figures.format("186.05") + "  5e-07")),
            "all_gather": ("type     time   algbw   busbw  error     time   algbw   busbw  error",
                           "float" + 2 * (figures.format("170.54") + "    N/A")),
            "alltoall": ("type   redop     time   algbw   busbw  error     time   algbw   busbw  error",
                         "float        " + 2 * (figures.format("170.54") + "    N/A")),
            "reduce_scatter": ("type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
                               "float     sum      -1" + 2 * (figures.format("170.54") + "      0")),
            "all_reduce": ("type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"
                           "             timestamp",
                           "float     sum      -1" + 2 * (figures.format("341.09") + "       0") +
                           "  2026-11-27 16:00:00"),
            "sendrecv": ("type   redop    root     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%"
                         "  cputime   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%",
                         "float     sum      -1" + 2 * (figures.format("186.05") + "       0   1  2  3  4"))}
        for collective, (columns, row) in tables.items():
            text = (f"# nThread 1 nGpus 12 minBytes 1\n# Using devices\n{gpus}#\n#       size         count      "
                    f"{columns}\n#        (B)    (elements)\n292KF14:356631:356700 [0] NCCL INFO Connected\n"
                    f"10.0.0.1 is up\n   134217728      33554432     {row}\n# Out of bounds values : 0 OK\n"
                    "# Avg bus bandwidth    : 1\n#\n")
            with self.subTest(collective=collective):
                arms = self.imported("nccl-tests", self.write("named.log",
                                                              f"+ ./build/{collective}_perf -g 12\n" + text))["arms"]
                self.assertEqual([arm["name"] for arm in arms], [
                    f"{collective} 134217728 bytes, {place}, 12 GPUs, NVIDIA A100, NVIDIA H100 80GB HBM3"
                    for place in ("out of place", "in place")])
                self.assertIn(f"{arms[0]['imported'][0]['bus_bandwidth_bytes_per_second'] / 1e9:.2f}", row)
                names = [arm["name"] for arm in self.imported("nccl-tests", self.write("two.log", 2 * text))["arms"]]
                self.assertEqual([name[:15] for name in names], 2 * ["two.log table 1"] + 2 * ["two.log table 2"])
                self.assert_log_stops("nccl-tests", f"+ {collective}_perf\n" + text.replace("721.4", "72.14"),
                                      21, "size / time")
                self.assert_log_stops("nccl-tests", text.replace("0 OK", "1 FAILED"), 21, "not right")
        os.mkdir(self.path("b"))
        files = [self.write("all.log", text), self.write("b/all.log", text + "#\n")]
        names = [arm["name"] for arm in json.loads(self.call("import", "nccl-tests", *files).out)["arms"]]
        self.assertEqual([name[-8:] for name in names], 2 * [", file 1"] + 2 * [", file 2"])
        alone = self.text_of("nccl_tests.log").replace("186.05  186.05", "186.05    0.00").replace(
            "186.46  186.46", "186.46    0.00")
        alone = "".join(line for line in alone.splitlines(True) if "Rank  1" not in line)
        self.assert_log_stops("nccl-tests", alone, 13, "one GPU", "MPI=1")
        rank = "#  Rank  0 Group  0 Pid   1201 on       host device  0 [0x07] NVIDIA A100\n"
        self.assert_log_stops("nccl-tests", 2 * rank, 2, "rank 1 must come next", "MPI=1")
        self.assert_log_stops("nccl-tests", "host:12:13 [0] NCCL INFO Connected all rings\n", 1, "rank 0 prints")


class Kinds(ImportTest):
    def test_a_report_in_a_log_is_found_whatever_stands_before_its_lines(self):
        lines = REPORT.read_text(encoding="utf-8").splitlines()
        expected = self.call("report", str(REPORT)).out
        for name, prefix in PREFIXES.items():
            log = self.write("job.log", "".join(f"{prefix}{line}\n" for line in ["starting", *lines, "done"]))
            process = self.call("report", log)
            self.assertEqual(process.out, expected, f"{name}: {process.err}")
            self.assertIn("0.00 %", self.call("compare", log, log).out, name)
        bare = "".join(f"{line.lstrip()}\n" for line in lines)  # of `while read line; do echo "$line"; done`
        self.assertEqual(self.call("report", self.write("job.log", bare)).out, expected)
        self.assertIn("holds 2 reports", self.call("rerun", self.write("job.log", 2 * bare)).err)

    def test_a_file_of_another_kind_is_told_as_what_it_is(self):
        texts = {
            "journal": '{"schema":"nearmetal/journal","schema_version":"1.0"}\n{"layout":0,"repeat":1,"report":' +
                       json.dumps(json.loads(REPORT.read_text(encoding="utf-8"))) + "}\n",
            "import mlperf": self.text_of("mlperf_result.txt"),
            "MLPerf 0.5": ":::MLPv0.5.0 resnet 1541720386.718 (train.py:49) run_start\n",
            "MLPerf 0.6": ":::MLL 1557200000.000 run_start: {\"value\": null}\n",
            ":::SYSJSON": '{"number_of_nodes": "1", "accelerators_per_node": "8"}\n',
            "import nccl-tests": self.text_of("nccl_tests.log"),
            "import tf_cnn_benchmarks": self.text_of("tf_cnn_benchmarks.log"),
            "import pairs": self.text_of("four_nodes.json"),
            "mig-parted": "version: v1\nmig-configs:\n  all-disabled:\n  - devices: all\n    mig-enabled: false\n",
            "ConfigMap": "apiVersion: v1\nkind: ConfigMap\ndata:\n  config.yaml: |\n    version: v1\n",
            "hostfile": "node0 slots=8\nnode1 slots=8\n",
            "layout file": '{"layouts": []}\n'}
        readers = (["report"], ["import", "mlperf"], ["import", "nccl-tests"],
                   ["import", "tf_cnn_benchmarks"])
        for name, text in texts.items():
            for reader in readers:
                if name == " ".join(reader[:2]):
                    continue
                file = self.write("other", text)
                process = self.call(*reader, file)
                with self.subTest(file=name, reader=reader):
                    self.assert_refused(process, 5, "it holds", name)
        process = self.call("import", "mlperf", str(REPORT))
        self.assert_refused(process, 5, "nearmetal report")
        file = self.write("other.json", texts["import mlperf"])
        for reader, code in ((["plan", file], 2), (["plan", "1x1x1", "--hosts", file], 2),
                             (["doctor", "--mig-config", file], 2),
                             (["sweep", "1x1x1", "--hosts", "localhost:0", "--resume", file], 5)):
            self.assert_refused(self.call(*reader), code, "it holds a log of MLPerf Training")


if __name__ == "__main__":
    cli.main()
