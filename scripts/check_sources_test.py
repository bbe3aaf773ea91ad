#!/usr/bin/env python3
"""Plants breaches in a small tree and sees check_sources.py find each, and nothing else."""

import json
import pathlib
import tempfile
import unittest

from check_sources import EVIDENCE, REACH, check

CLEAN = {
    "models/graph.h": "#pragma once\n#include <vector>\n",
    "models/networks/resnet.h": '#include "models/graph.h"\n',
    "models/cpu/conv.cpp": '#include "models/graph.h"\n#include <oneapi/dnnl/dnnl.hpp>\n',
    "models/cuda/libraries/conv.h": "#include <cudnn_graph.h>\n#include <cuda_runtime.h>\n",
    "reports/document/types.h": '#include "models/graph.h"\n',
    "reports/json/json.cpp": "#include <nlohmann/json.hpp>\n",
    "bench/cli/command_line.cpp": '#include "reports/document/types.h"\n#include <CLI/CLI.hpp>\n',
    "bench/run/trainer.h": "#pragma once\n",
    "comm/world.h": "#pragma once\n",
    "comm/layout/layout.h": "#pragma once\n",
    "tests/unit/a_test.cpp": '#include "models/networks/resnet.h"\n#include <gtest/gtest.h>\n',
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
            ("models/a.cpp", "reports/document/types.h"),
            ("models/a.cpp", "models/cuda/libraries/conv.h"),
            ("models/cpu/a.cpp", "models/cuda/libraries/conv.h"),
            ("bench/run/a.cpp", "models/cuda/libraries/conv.h"),
            ("reports/json/a.cpp", "models/networks/resnet.h"),
            ("reports/json/a.cpp", "bench/cli/command_line.cpp"),
            ("comm/a.cpp", "models/networks/resnet.h"),
            ("bench/run/a.cpp", "tests/unit/a_test.cpp"),
        ]:
            with self.subTest(name=name, header=header):
                self.assert_breach(name, f'\n#include "{header}"\n', f"{name}:2")

    def test_definitions(self):
        header = "int sum(int a, int b);\nstruct Rank {\n  int next() const;\n};\n"
        here = "int sum(int a, int b) { return a + b; }\nint Rank::next() const {\n  return 1;\n}\n"
        local = "namespace {\nint sum(int a) {\n  return a;\n}\n}  // namespace\nint main() { return sum(1); }\n"
        planted = {"reports/merge/sums.h": header}
        self.assertEqual(self.breaches({**planted, "reports/merge/sums.cpp": here}), [])
        self.assertEqual(self.breaches({**planted, "reports/merge/other.cpp": local}), [])
        self.assertEqual(self.breaches({**planted, "reports/merge/other.cpp": here}), [
            "reports/merge/other.cpp:1: sum is declared elsewhere than in reports/merge/other.h",
            "reports/merge/other.cpp:1: Rank::next is declared elsewhere than in reports/merge/other.h"])
        self.assertEqual(self.breaches({**planted, "models/cuda/other.cpp": here}), [])  # an exception

    def test_reach(self):
        planted = {"models/program.h": "#pragma once\n", "models/step.h": '#include "models/program.h"\n'}
        sources = {f"comm/a{number}.cpp": '#include "models/step.h"\n' for number in range(REACH["models/program.h"])}
        self.assertEqual(self.breaches({**planted, **dict(list(sources.items())[:40])}), [])
        many = {name.replace("comm/", f"models/{folder}/"): text for folder, (name, text) in
                zip(["cpu", "cuda/compiler", "networks", "cuda"] * len(sources), sources.items())}
        self.assertEqual(self.breaches({**planted, **many}), [])
        self.assertEqual(self.breaches({**planted, **many, "comm/one.cpp": '#include "models/step.h"\n'}), [
            "models/program.h:1: 130 sources read it, 129 at most: declare apart what they need"])

    def test_floors(self):
        for name, header in [
            ("bench/cli/a.cpp", "bench/run/trainer.h"),
            ("bench/environment/a.cpp", "bench/cli/command_line.cpp"),
            ("comm/a.cpp", "comm/layout/layout.h"),
            ("comm/layout/a.cpp", "comm/world.h"),
            ("reports/document/a.cpp", "reports/json/json.cpp"),
            ("models/cuda/kernels/a.cpp", "models/cuda/libraries/conv.h"),
        ]:
            with self.subTest(name=name, header=header):
                self.assert_breach(name, f'\n#include "{header}"\n', f"{name}:2")
        for name, header in [
            ("bench/a.cpp", "bench/run/trainer.h"),
            ("bench/run/a.cpp", "comm/layout/layout.h"),
            ("models/cuda/a.cpp", "models/cuda/libraries/conv.h"),
        ]:
            with self.subTest(name=name, header=header):
                self.assertEqual(self.breaches({name: f'#include "{header}"\n'}), [])

    def test_every_room_has_a_floor(self):
        self.assert_breach("bench/attic/a.cpp", "//\n", "bench/attic")

    def test_a_folder_holds_no_more_than_one_can_see(self):
        many = {f"bench/run/a{number}.cpp": "//\n" for number in range(45)}
        breaches = self.breaches(many)
        self.assertEqual(len(breaches), 1, breaches)
        self.assertTrue(breaches[0].startswith("bench/run:46:"), breaches)

    def test_documents_name_what_is_there(self):
        self.assert_breach("README.md", "see\n`models/graf.h`\n", "README.md:2")
        self.assertEqual(self.breaches({"docs/a.md": "`models/graph.h`, `models/graph` "
                                                     "and [b](../models/graph.h)\n"}), [])

    def test_angle_brackets_and_spaces_hide_nothing(self):
        self.assert_breach("models/a.cpp", " #  include <reports/document/types.h>\n",
                           "models/a.cpp:1")

    def test_paths_start_at_the_root(self):
        self.assert_breach("models/a.cpp", '#include "graph.h"\n', "models/a.cpp:1")

    def test_fences(self):
        for name, header in [
            ("reports/compare/compare.cpp", "nlohmann/json.hpp"),
            ("comm/layout/a.cpp", "regex"),
            ("bench/run/a.cpp", "dnnl.hpp"),
            ("bench/run/a.cpp", "cuda_runtime.h"),
            ("bench/run/a.cpp", "cublasLt.h"),
            ("models/cuda/a.cpp", "nccl.h"),
            ("models/cpu/a.cpp", "cudnn.h"),
            ("models/a.cpp", "gtest/gtest.h"),
        ]:
            with self.subTest(name=name, header=header):
                self.assert_breach(name, f"#include <{header}>\n", f"{name}:1")

    def test_kernels_read_lean_headers_alone(self):
        lean = {"models/cuda/kernels/a.h": "#include <cstdint>\n",
                "models/cuda/kernels/a.cu": '#include <cmath>\n#include "models/cuda/kernels/a.h"\n'}
        self.assertEqual(self.breaches(lean), [])
        self.assert_breach("models/cuda/kernels/b.cu", "#include <string>\n",
                           "models/cuda/kernels/b.cu:1")
        through = {**lean, "models/cuda/kernels/b.h": '#include "models/graph.h"\n',
                   "models/cuda/kernels/b.cu": '#include "models/cuda/kernels/b.h"\n'}
        breaches = self.breaches(through)
        self.assertEqual(len(breaches), 1, breaches)
        self.assertTrue(breaches[0].startswith("models/graph.h:2: vector"), breaches)

    def test_codes_are_named_by_tests(self):
        for form in ('warnings.push_back({"gone_astray", "text"});', 'warn(run, "gone_astray", "x");',
                     'Warning{"gone_astray",\n "text"};', 'return {Urgency::note, "gone_astray",',
                     '{old ? Urgency::note : Urgency::warning,\n "gone_astray",',
                     'old ? "gone_astray" : code', '    {"gone_astray",\n     {cpu, launch},'):
            with self.subTest(form=form):
                planted = {"bench/run/a.cpp": form}
                breaches = self.breaches(planted)
                self.assertEqual(len(breaches), 1, breaches)
                self.assertRegex(breaches[0], r"^bench/run/a.cpp:\d: no test names .* gone_astray")
                planted["tests/cli/a_test.py"] = "x = 'warning gone_astray'"
                self.assertEqual(self.breaches(planted), [])

    def test_facts_are_judged_or_evidence(self):
        def planted(more, judge):
            facts = {kind: {"properties": dict.fromkeys(names.split() + more, {})}
                     for kind, names in EVIDENCE.items() if kind != "series"}
            series = "".join(f'"{name}", ' for name in EVIDENCE["series"].split())
            return {"reports/schema/report.schema.json": json.dumps({"$defs": facts}),
                    "bench/monitor/monitor_sources.cpp": f"X GpuSource::names() {{ return {{{series}}}; }}\n",
                    "bench/doctor/a.cpp": judge}

        self.assertEqual(self.breaches(planted([], "")), [])
        self.assertEqual(self.breaches(planted(["is_cracked"], "if (gpu.is_cracked) f();\n")), [])
        breaches = self.breaches(planted(["is_cracked"], "// is_cracked\n"))
        self.assertEqual(len(breaches), 3, breaches)  # of gpu, limits and processor

    def test_sentences_are_not_read(self):
        for line in ('if (warning.text.starts_with("job ")) f();', "a->seen.find('x');",
                     "run.failure->substr(3);", "warning.text.insert(0, name);"):
            self.assert_breach("reports/json/a.cpp", f"\n{line}\n", "reports/json/a.cpp:2")
        self.assertEqual(self.breaches({"reports/imports/a.cpp": "line.text.find('x');\n",
                                        "reports/json/a.cpp": "print(warning.text + other.seen);\n"}), [])

    def test_sources_are_in_a_list_of_cmake(self):
        planted = {"tests/CMakeLists.txt": "test(unit/a_test.cpp)", "bench/CMakeLists.txt": "cli/command_line.cpp",
                   "models/CMakeLists.txt": "cpu/conv.cpp", "reports/CMakeLists.txt": "json/json.cpp"}
        self.assertEqual(self.breaches(planted), [])
        planted["tests/unit/forgotten_test.cpp"] = ""
        self.assertEqual(self.breaches(planted),
                         ["tests/unit/forgotten_test.cpp:1: no CMakeLists.txt names it"])

    def test_mutants_have_their_expression(self):
        mutant = {"id": "none left", "file": "models/a.cpp", "was": "left == 0", "becomes": "left != 0"}
        planted = {"tests/mutants.json": json.dumps([mutant]), "models/a.cpp": "bool b = left == 0;\n"}
        self.assertEqual(self.breaches(planted), [])
        for text in ("bool b = left != 0;\n", "bool b = left == 0, c = left == 0;\n"):
            self.assertEqual(self.breaches({**planted, "models/a.cpp": text}),
                             ['tests/mutants.json:1: the expression of "none left" is not once in models/a.cpp'])

    def test_exit_codes_are_expected_by_tests(self):
        planted = {"base/errors.h": "enum class ExitCode : int {\n  ok = 0,\n  hung_up = 129,\n};\n",
                   "tests/unit/b_test.cpp": "EXPECT_EQ(code, ExitCode::ok);"}
        self.assertEqual(self.breaches(planted),
                         ["base/errors.h:1: no test expects the exit code 129, hung_up"])
        planted["tests/cli/a_test.py"] = "self.assertEqual(process.returncode, 129)"
        self.assertEqual(self.breaches(planted), [])

    def test_command_line_library_stays_in_one_file(self):
        self.assert_breach("bench/run/a.cpp", "#include <CLI/CLI.hpp>\n", "bench/run/a.cpp:1")

    def test_sizes(self):
        self.assert_breach("bench/run/long.cpp", "//\n" * 501, "bench/run/long.cpp:501")
        self.assert_breach("bench/main.cpp", "//\n" * 51, "bench/main.cpp:51")
        self.assertEqual(self.breaches({"bench/run/a.cpp": "//\n" * 400}), [])


if __name__ == "__main__":
    unittest.main()
