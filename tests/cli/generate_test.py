"""`nearmetal generate`: the same in all forms, and the manual page."""

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

    def test_every_option_of_the_help_is_everywhere(self):
        texts = {form: self.generate(form) for form in ("bash", "zsh", "fish", "man", "markdown")}
        texts["man"] = texts["man"].replace("\\-", "-")
        for command in COMMANDS:
            offered = re.search(rf"(?m)^ +{command}\) words='(.*?)'", texts["bash"])[1].split()
            options = re.findall(r"(?m)^  (?:-\w,)?--([a-z-]+)", self.call(command, "--help").out)
            self.assertIn("help", options)
            for option in options:
                self.assertIn("--" + option, offered, command)
                self.assertRegex(texts["zsh"], rf"'--{option}=?\[")
                self.assertRegex(texts["fish"],
                                 rf"(?m)__nearmetal_within {command}'.* -l {option} ")
                self.assertIn(rf"\fB--{option}\fR", texts["man"])
                if option != "help":
                    section = texts["markdown"].split(f"\n## {command}")[1].split("\n## ")[0]
                    self.assertRegex(section, rf"(?m)^\| `[^`]*--{option}\b")

    def test_the_shells_can_read_them(self):
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell):
                script = self.write(shell, self.generate(shell))
                process = subprocess.run([shell, "-n", script], capture_output=True, text=True,
                                         timeout=cli.limit(60), check=False)
                self.assertEqual((process.returncode, process.stderr), (0, ""), shell)

    def test_man_reads_the_manual(self):
        text = self.generate("man")
        self.assertIn(r"markdown|\:text|\:html", text)  # where long lists of words may be broken
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

    def test_the_page_of_options_is_what_the_program_prints(self):
        page = pathlib.Path(__file__).parents[2] / "docs/options.md"
        self.assertEqual(page.read_text(encoding="utf-8"), self.generate("markdown"),
                         "write the output of `nearmetal generate markdown` into the page")

    def test_unknown_forms_are_refused(self):
        self.assert_refused(self.call("generate", "csh"), 2, "'csh'", "bash, zsh, fish, man")


if __name__ == "__main__":
    cli.main()
