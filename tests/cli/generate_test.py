"""`nearmetal generate`: completion as the shells use it, and the manual page."""

import os
import pathlib
import re
import shutil
import subprocess

import cli

COMMANDS = ["run", "export", "compare", "gate", "baseline", "report", "plan", "validate", "schema"]


class Generate(cli.CliTest):
    def generate(self, form):
        process = self.call("generate", form)
        self.assertEqual((process.returncode, process.err), (0, ""))
        return process.out

    def completions(self, *words):
        """What bash offers for the last of these words, as it calls the function."""
        script = self.write("completion", self.generate("bash"))
        quoted = " ".join(f"'{word}'" for word in words)
        program = f"""set -eu
            compopt() {{ echo "compopt $*"; }}
            source {script}
            COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}
            _nearmetal
            if ((${{#COMPREPLY[@]}})); then printf '%s\\n' "${{COMPREPLY[@]}}"; fi"""
        process = subprocess.run(["bash", "--norc", "-c", program], cwd=self.folder,
                                 capture_output=True, text=True, timeout=cli.limit(60), check=False)
        self.assertEqual(process.stderr, "")
        return process.stdout.split("\n")[:-1]

    def test_bash_offers_what_fits(self):
        no_files = ["compopt +o default"]
        os.makedirs(self.path("baselines/main"))
        cases = [
            (["nearmetal", "ex"], no_files + ["export"]),
            (["nearmetal", "--v"], no_files + ["--version"]),
            (["nearmetal", "run", "--im"], ["--image-size"]),
            (["nearmetal", "run", "--precision", ""], no_files + ["fp32", "tf32", "bf16", "fp16"]),
            (["nearmetal", "run", "--precision", "=", "b"], no_files + ["bf16"]),
            (["nearmetal", "run", "--device", "="], no_files + ["auto", "cpu", "cuda"]),
            (["nearmetal", "run", "--steps", ""], no_files),
            (["nearmetal", "run", "--output", ""], []),
            (["nearmetal", "--quiet", "run", "--device", "cp"], no_files + ["cpu"]),
            (["nearmetal", "validate", "some"], []),
            (["nearmetal", "baseline", "sh"], ["show"]),
            (["nearmetal", "generate", "z"], ["zsh"]),
            (["nearmetal", "run", "--model", "resnet5"], no_files + ["resnet50", "resnet50_v1"]),
            (["nearmetal", "compare", "--metric", "p9"],
             no_files + ["p95_step_seconds", "p99_step_seconds"]),
            (["nearmetal", "gate", "--allow-differ", "weight"], no_files + ["weight_decay"]),
            (["nearmetal", "schema", "lay"], ["layout"]),
            (["nearmetal", "plan", "dell"], ["dell_vms"]),
            (["nearmetal", "help", "stre"], ["stress"]),
            (["nearmetal", "gate", "mai"], ["main"]),
            (["nearmetal", "baseline", "remove", "mai"], ["main"]),
        ]
        for words, expected in cases:
            with self.subTest(words=words):
                self.assertEqual(self.completions(*words), expected)

    def test_every_option_of_the_help_is_everywhere(self):
        texts = {form: self.generate(form) for form in ("bash", "zsh", "fish", "man")}
        texts["man"] = texts["man"].replace("\\-", "-")
        for command in COMMANDS:
            offered = set(self.completions("nearmetal", command, "-"))
            options = re.findall(r"(?m)^  (?:-\w,)?--([a-z-]+)", self.call(command, "--help").out)
            self.assertIn("help", options)
            for option in options:
                self.assertIn("--" + option, offered, command)
                self.assertRegex(texts["zsh"], rf"'--{option}\[")
                self.assertRegex(texts["fish"],
                                 rf"(?m)__fish_seen_subcommand_from {command}'.* -l {option} ")
                self.assertIn(rf"\fB--{option}\fR", texts["man"])

    def test_the_shells_can_read_them(self):
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell):
                script = self.write(shell, self.generate(shell))
                process = subprocess.run([shell, "-n", script], capture_output=True, text=True,
                                         timeout=cli.limit(60), check=False)
                self.assertEqual((process.returncode, process.stderr), (0, ""), shell)

    def test_man_reads_the_manual(self):
        text = self.generate("man")
        self.assertNotRegex(text, r"(?m)^'")
        page = self.write("nearmetal.1", text)
        if not shutil.which("groff"):
            self.skipTest("no groff")
        process = subprocess.run(["groff", "-man", "-Tascii", "-P-c", "-ww", page],
                                 capture_output=True, text=True, timeout=cli.limit(60), check=False)
        self.assertEqual(process.stderr, "")
        self.assertIn("--image-size", re.sub(".\b", "", process.stdout))

    def test_the_manual_has_the_usual_sections(self):
        text = self.generate("man")
        for section in ("ENVIRONMENT", '"EXIT STATUS"', "FILES", '"SEE ALSO"'):
            self.assertIn(f".SH {section}\n", text)

    def test_pages_help_and_manual_say_the_same_of_exit_codes(self):
        root = pathlib.Path(__file__).parents[2]
        pages = "".join(page.read_text(encoding="utf-8")
                        for page in [root / "README.md", *root.glob("docs/*.md")])
        section = pages.split("## Exit codes\n")[1].split("\n## ")[0].replace("`", "")
        of_pages = {}
        for codes, meaning in re.findall(r"(?m)^\| (\d+(?:, \d+)*) +\| (.*\S) +\|$", section):
            several = codes.split(", ")
            meanings = meaning.split(", ") if len(several) > 1 else [meaning]
            of_pages.update(zip(several, meanings, strict=True))
        self.assertIn("10", of_pages)
        help_text = self.call("--help").out.split("Exit codes:\n")[1]
        self.assertEqual(dict(re.findall(r"(?m)^ +(\d+)  (.*)$", help_text)), of_pages)
        manual = self.generate("man").split('.SH "EXIT STATUS"\n')[1].split(".SH")[0]
        of_manual = re.findall(r"\.TP\n\\fB(\d+)\\fR\n(.*)", manual.replace("\\-", "-"))
        self.assertEqual(dict(of_manual), of_pages)

    def test_unknown_forms_are_refused(self):
        self.assert_refused(self.call("generate", "csh"), 2, "'csh'", "bash, zsh, fish, man")


if __name__ == "__main__":
    cli.main()
