"""What a terminal shows: lines of progress that are written over, and those that stay."""

import itertools
import json
import os
import re

import cli
from comparing import CompareTest


class Terminal(CompareTest):
    def on_terminal(self, columns, *arguments):
        """What goes to standard error, a terminal of so many columns."""
        process = self.start_on_terminal(*arguments, columns=columns)
        text = cli.shown_by(process)
        process.communicate(timeout=cli.limit(60))
        self.assertEqual(process.returncode, 0, text)
        return text

    def test_progress_fits_in_the_terminal(self):
        for columns in (20, 200):
            text = self.on_terminal(columns, *cli.TINY, "--duration", "1", "--output",
                                    f"{columns}.json")
            shown = [line.partition("\n")[0] for line in text.split("\r\x1b[K")[1:]]
            self.assertGreater(len(shown), 2, text)
            self.assertLess(max(map(len, shown)), columns, text)
            full = re.compile(r"step \d+ of \d+, \d+ images/s, \d+ s left")
            self.assertEqual(any(map(full.fullmatch, shown)), columns == 200, text)

    def test_tables_take_the_columns_that_there_are(self):
        for folder, throughput in (("old", 10561), ("new", 10012)):
            os.mkdir(self.path(folder))
            self.runs(f"{folder}/run", throughput)
        for command in (["compare", "old", "new"], ["report", "old", "--format", "text"]):
            for columns in (60, 80):
                env = {**cli.clean_environment(), "COLUMNS": str(columns)}
                text = self.call(*command, env=env).out
                self.assertLessEqual(max(map(len, text.splitlines())), columns, text)
                self.assertNotIn("p (t)", text)
            wide = self.call(*command, env={**env, "COLUMNS": "200"}).out
            self.assertEqual(wide, self.call(*command).out)
        self.assertIn("p (t)", self.call("compare", "old", "new").out)

    def test_whatever_is_shown_takes_the_columns_that_there_are(self):
        runs = self.runs("run", 10561, count=3)
        self.assertEqual(self.call("baseline", "add", "main", *runs).returncode, 0)
        probe = ["micro", "--seconds", "0.001", "--repetitions", "1", "--device", "cpu",
                 "cpu/quantum"]
        commands = [["--version"], ["doctor"], ["models"], ["micro", "--list"], probe,
                    ["baseline", "show", "main"], ["baseline", "list"],
                    ["baseline", "list", "--baselines", "none"], ["gate", "main", *runs],
                    ["plan", "1x1x2", "2*(1x1x1)", "--hosts", "localhost:2"]]
        profile = [*cli.TINY, "--steps", "5", "--profile", "--no-report"]
        for columns, command in [*itertools.product((60, 40), commands), (60, profile)]:
            process = self.call(*command, env={**cli.clean_environment(), "COLUMNS": str(columns)})
            self.assertIn(process.returncode, (0, 3), process.err)
            # A text to be copied, or read by a script, is a line, and a path a word.
            lines = [line for line in process.out.splitlines() if " " in line.strip()
                     and not line.startswith(("  mpirun ", "verdict: ", "commit "))]
            self.assertLessEqual(max(map(len, lines)), columns, process.out)

    def test_a_line_of_doctor_is_whole_without_a_limit(self):
        findings = json.loads(self.call("doctor", "--json").out)["findings"]
        lines = self.call("doctor").out.splitlines()
        # Other processes may come and go between the two calls; the machine stays.
        lasting = [finding for finding in findings if finding["code"] != "cpus_in_use"]
        self.assertGreater(len(lasting), 0, findings)
        for finding in lasting:
            self.assertTrue(any(line.endswith(finding["fix"]) for line in lines), finding)

    def test_a_line_of_each_run_stays_and_the_time_left_is_shown(self):
        text = self.on_terminal(80, *cli.TINY, "--steps", "200", "--repeats", "2", "--output",
                                "r.json")
        stays = re.findall(r"(?m)(?:^|\r\x1b\[K)(run \d of 2: throughput \S+ images/s)\n", text)
        self.assertEqual([line[:10] for line in stays], ["run 1 of 2", "run 2 of 2"], text)
        self.assertRegex(text, r"run 2 of 2, [^\r]*, about \d+ s left")
        self.assertNotRegex(text, r"run 1 of 2, [^\r]*left")


if __name__ == "__main__":
    cli.main()
