"""Which modules and layout files a program takes that is installed, or lies alone in a folder."""

import json
import os
import shutil

import cli


def module(name):
    return os.path.join(os.path.dirname(cli.EXECUTABLE), f"libnearmetal_{name}.so")


class Modules(cli.CliTest):
    def test_layouts_that_anybody_could_have_put_there_are_not_taken(self):
        program = self.path("bin/nearmetal")
        os.makedirs(os.path.dirname(program))
        shutil.copy(cli.EXECUTABLE, program)
        layouts = json.dumps({"layouts": [{"name": "one", "shape": "1x1x1"}]})
        for place in ("layouts", "share/nearmetal/layouts"):
            os.makedirs(self.path(place))
            file = self.write(f"{place}/pair.json", layouts)
            plan = ("plan", "pair")
            self.assertEqual(self.call(*plan, executable=program).returncode, 0)
            own = self.path(place.split("/", maxsplit=1)[0])
            for open_to_all in {own, os.path.dirname(file), file}:
                mode = os.stat(open_to_all).st_mode
                os.chmod(open_to_all, 0o777)
                self.assert_refused(self.call(*plan, executable=program), 8, f"{file} is not loaded",
                                    f"{open_to_all} is for everybody to write")
                os.chmod(open_to_all, mode)
            if os.geteuid() == 0:
                os.chown(own, 12345, -1)
                self.assert_refused(self.call(*plan, executable=program), 8,
                                    f"{own} belongs neither to root, to you nor")

    def test_a_build_is_what_would_be_loaded(self):
        """Not what lies in the folder of an installation as well."""
        program = self.path("bin/nearmetal")
        os.makedirs(os.path.dirname(program))
        shutil.copy(cli.EXECUTABLE, program)
        os.symlink(module("cpu"), self.path("bin/libnearmetal_cpu.so"))
        run = [*cli.TINY, "--warmup", "1", "--steps", "3", "--output", "r.json", "--force"]

        def build_id():
            process = self.call(*run, executable=program)
            self.assertEqual(process.returncode, 0, process.err)
            return self.report("r.json")["tool"]["build_id"]

        first = build_id()
        os.makedirs(self.path("lib/nearmetal"))
        os.symlink(module("cpu"), self.path("lib/nearmetal/libnearmetal_cpu.so"))
        self.assertEqual(build_id(), first)

    def test_modules_that_anybody_could_have_put_there_are_not_loaded(self):
        program, lib = self.path("bin/nearmetal"), self.path("lib/nearmetal")
        os.makedirs(os.path.dirname(program))
        os.makedirs(lib)
        shutil.copy(cli.EXECUTABLE, program)
        name = os.path.basename(module("cpu"))
        os.symlink(module("cpu"), os.path.join(lib, name))
        run = [*cli.TINY, "--warmup", "1", "--steps", "3", "--output", "r.json", "--force"]
        self.assertEqual(self.call(*run, executable=program).returncode, 0)
        for folder in (lib, os.path.dirname(lib)):
            os.chmod(folder, 0o777)
            process = self.call(*run, executable=program)
            self.assertEqual(process.returncode, 8, process.err)
            self.assertIn(f"{name} is not loaded: {folder} is for everybody to write",
                          process.err)
            os.chmod(folder, 0o755)
        if os.geteuid() == 0:
            os.chown(lib, 12345, -1)
            process = self.call(*run, executable=program)
            self.assertEqual(process.returncode, 8, process.err)
            self.assertIn(f"{lib} belongs neither to root, to you nor", process.err)


if __name__ == "__main__":
    cli.main()
