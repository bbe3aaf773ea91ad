#!/usr/bin/env python3
"""Plants breaches in a small tree and sees check_sources.py find each, and nothing else."""

import pathlib
import tempfile
import unittest

from check_sources import check

CLEAN = {
    "models/graph.h": "#pragma once\n#include <vector>\n",
    "models/resnet.h": '#include "models/graph.h"\n',
    "models/cpu/conv.cpp": '#include "models/graph.h"\n#include <oneapi/dnnl/dnnl.hpp>\n',
    "models/cuda/conv.h": "#include <cudnn_graph.h>\n#include <cuda_runtime.h>\n",
    "reports/types.h": '#include "models/graph.h"\n',
    "reports/json.cpp": "#include <nlohmann/json.hpp>\n",
    "bench/command_line.cpp": '#include "reports/types.h"\n#include <CLI/CLI.hpp>\n',
    "tests/unit/a_test.cpp": '#include "models/resnet.h"\n#include <gtest/gtest.h>\n',
}


class CheckSources(unittest.TestCase):
    def breaches(self, planted):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**CLEAN, **planted}.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return list(check(pathlib.Path(folder)))

    def assert_breach(self, name, text, place):
        breaches = self.breaches({name: text})
        self.assertEqual(len(breaches), 1, breaches)
        self.assertTrue(breaches[0].startswith(place + ":"), breaches)

    def test_clean_tree_passes(self):
        self.assertEqual(self.breaches({}), [])

    def test_arrows(self):
        for name, header in [
            ("models/a.cpp", "reports/types.h"),
            ("models/a.cpp", "models/cuda/conv.h"),
            ("models/cpu/a.cpp", "models/cuda/conv.h"),
            ("bench/a.cpp", "models/cuda/conv.h"),
            ("reports/a.cpp", "models/resnet.h"),
            ("reports/a.cpp", "bench/command_line.cpp"),
            ("comm/a.cpp", "models/resnet.h"),
            ("bench/deep/a.cpp", "tests/unit/a_test.cpp"),
        ]:
            with self.subTest(name=name, header=header):
                self.assert_breach(name, f'\n#include "{header}"\n', f"{name}:2")

    def test_angle_brackets_and_spaces_hide_nothing(self):
        self.assert_breach("models/a.cu", " #  include <reports/types.h>\n", "models/a.cu:1")

    def test_paths_start_at_the_root(self):
        self.assert_breach("models/a.cpp", '#include "graph.h"\n', "models/a.cpp:1")

    def test_fences(self):
        for name, header in [
            ("reports/compare.cpp", "nlohmann/json.hpp"),
            ("bench/run.cpp", "dnnl.hpp"),
            ("bench/run.cpp", "cuda_runtime.h"),
            ("bench/run.cpp", "cublasLt.h"),
            ("models/cuda/a.cu", "nccl.h"),
            ("models/cpu/a.cpp", "cudnn.h"),
            ("models/a.cpp", "gtest/gtest.h"),
        ]:
            with self.subTest(name=name, header=header):
                self.assert_breach(name, f"#include <{header}>\n", f"{name}:1")

    def test_command_line_library_stays_in_one_file(self):
        self.assert_breach("bench/run.cpp", "#include <CLI/CLI.hpp>\n", "bench/run.cpp:1")

    def test_sizes(self):
        self.assert_breach("bench/long.cpp", "//\n" * 321, "bench/long.cpp:321")
        self.assert_breach("bench/main.cpp", "//\n" * 91, "bench/main.cpp:91")
        self.assertEqual(self.breaches({"bench/a.cpp": "//\n" * 320}), [])


if __name__ == "__main__":
    unittest.main()
