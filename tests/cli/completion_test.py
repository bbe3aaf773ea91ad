"""What `nearmetal generate` gives to bash, zsh and fish, completed by those that are there."""

import os
import pty
import shutil
import subprocess

import cli

CASES = {
    "nearmetal ex": ["export"],
    "nearmetal --v": ["--version"],
    "nearmetal run --im": ["--image-size"],
    "nearmetal run --precision ": ["bf16", "fp16", "fp32", "tf32"],
    "nearmetal run --steps ": [],
    "nearmetal run --output sc": ["script"],
    "nearmetal --quiet run --device cp": ["cpu"],
    "nearmetal validate sc": ["script"],
    "nearmetal run --output report --gradient-t": ["--gradient-type"],
    "nearmetal baseline sh": ["show"],
    "nearmetal baseline show ma": ["main"],
    "nearmetal baseline remove ma": ["main"],
    "nearmetal gate ma": ["main"],
    "nearmetal generate z": ["zsh"],
    "nearmetal run --model resnet5": ["resnet50", "resnet50_v1"],
    "nearmetal compare --metric p95": ["p95_latency_seconds", "p95_step_seconds"],
    "nearmetal gate --allow-differ weight": ["weight_decay"],
    "nearmetal schema lay": ["layout"],
    "nearmetal plan dell": ["dell_bare_metal", "dell_vms"],
    "nearmetal help stre": ["stress"],
}

BASH = r"""
for line in "$@"; do
  read -ra COMP_WORDS <<<"$line"
  if [[ $line == *' ' ]]; then COMP_WORDS+=(''); fi
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) with_files=1
  compopt() { with_files=; }
  _nearmetal
  if ((${#COMPREPLY[@]} == 0)) && [[ -n $with_files ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
  fi
  if ((${#COMPREPLY[@]})); then printf '%s\n' "${COMPREPLY[@]}"; fi
  echo '<end>'
done
"""

# The completion system of zsh works in its line editor alone.
ZSH = r"""
PROMPT=
fpath=($PWD/functions $fpath)
autoload -Uz compinit
compinit -u -D
mark() { print -r -- '<mark>' }
tell() { compprefuncs=(mark) comppostfuncs=(mark); zle complete-word; BUFFER= }
zle -N tell
bindkey '^I' tell
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
  local -a hits
  builtin compadd -A hits "$@"
  if (($#hits)); then print -rl -- $hits; else return 1; fi
}
mark
"""


def read_until_marks(terminal, count):
    text = b""
    while text.count(b"<mark>") < count:
        text += os.read(terminal, 65536)
    return text.decode().replace("\r", "")


class Completion(cli.CliTest):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("baselines/main"))

    def generated(self, shell):
        if not shutil.which(shell):
            self.skipTest(f"there is no {shell}")
        process = self.call("generate", shell)
        self.assertEqual((process.returncode, process.err), (0, ""))
        return process.out

    def output_of(self, *command):
        process = subprocess.run(command, cwd=self.folder, env={**cli.clean_environment(),
                                                                "HOME": self.folder},
                                 capture_output=True, text=True, timeout=cli.limit(60), check=False)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return process.stdout

    def assert_completed(self, outputs, cases):
        for (line, expected), output in zip(cases.items(), outputs, strict=True):
            offered = [text.split("\t")[0] for text in output.split("\n") if text.strip()]
            self.assertEqual(sorted(offered), expected, line)

    def test_bash(self):
        self.write("script", self.generated("bash") + BASH)
        # Bash takes --option=value apart.
        cases = {**CASES, "nearmetal run --precision = b": ["bf16"],
                 "nearmetal run --device =": ["auto", "cpu", "cuda"]}
        outputs = self.output_of("bash", "--norc", "script", *cases).split("<end>\n")[:-1]
        self.assert_completed(outputs, cases)

    def test_fish(self):
        self.write("script", self.generated("fish") +
                   "for line in $argv\n  complete -C $line\n  echo '<end>'\nend\n")
        cases = {**CASES, "nearmetal run --precision=b": ["--precision=bf16"],
                 "nearmetal run sc": []}
        outputs = self.output_of("fish", "-N", "script", *cases).split("<end>\n")[:-1]
        self.assert_completed(outputs, cases)

    def test_zsh(self):
        cases = {**CASES, "nearmetal run --precision=b": ["bf16"], "nearmetal run sc": []}
        os.mkdir(self.path("functions"))
        self.write("functions/_nearmetal", self.generated("zsh"))
        self.write(".zshrc", ZSH)
        self.write("script", "")
        terminal, slave = pty.openpty()
        self.addCleanup(os.close, terminal)
        process = subprocess.Popen(["zsh", "-d", "-i"], cwd=self.folder, start_new_session=True,
                                   stdin=slave, stdout=slave, stderr=slave,
                                   env={**cli.clean_environment(), "ZDOTDIR": self.folder,
                                        "TERM": "dumb"})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        os.close(slave)
        read_until_marks(terminal, 1)
        outputs = []
        for line in cases:
            os.write(terminal, line.encode() + b"\t")
            outputs.append(read_until_marks(terminal, 2).split("<mark>")[1])
        self.assert_completed(outputs, cases)


if __name__ == "__main__":
    cli.main()
