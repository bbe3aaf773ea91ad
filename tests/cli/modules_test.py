"""Which modules a program loads that is installed, or lies alone in a folder."""

import os
import shutil

import cli


class Modules(cli.CliTest):
    def test_modules_that_anybody_could_have_put_there_are_not_loaded(self):
        program, lib = self.path("bin/nearmetal"), self.path("lib/nearmetal")
        os.makedirs(os.path.dirname(program))
        os.makedirs(lib)
        shutil.copy(cli.EXECUTABLE, program)
        module = "libnearmetal_cpu.so"
        os.symlink(os.path.join(os.path.dirname(cli.EXECUTABLE), module), os.path.join(lib, module))
        run = [*cli.TINY, "--warmup", "1", "--steps", "3", "--output", "r.json", "--force"]
        self.assertEqual(self.call(*run, executable=program).returncode, 0)
        for folder in (lib, os.path.dirname(lib)):
            os.chmod(folder, 0o777)
            process = self.call(*run, executable=program)
            self.assertEqual(process.returncode, 8, process.err)
            self.assertIn(f"{module} is not loaded: {folder} is for everybody to write",
                          process.err)
            os.chmod(folder, 0o755)
        if os.geteuid() == 0:
            os.chown(lib, 12345, -1)
            process = self.call(*run, executable=program)
            self.assertEqual(process.returncode, 8, process.err)
            self.assertIn(f"{lib} belongs neither to root, to you nor", process.err)


if __name__ == "__main__":
    cli.main()
