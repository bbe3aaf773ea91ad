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
        """Neither from an installation nor beside the program, nor where a link there leads."""
        run = [*cli.TINY, "--warmup", "1", "--steps", "3", "--output", "r.json", "--force"]
        name = os.path.basename(module("cpu"))
        for place in ("installed/lib/nearmetal", "built/bin", "linked/bin"):
            program = self.path(place.split("/", maxsplit=1)[0] + "/bin/nearmetal")
            os.makedirs(os.path.dirname(program), exist_ok=True)
            os.makedirs(self.path(place), exist_ok=True)
            shutil.copy(cli.EXECUTABLE, program)
            file, judged = os.path.join(self.path(place), name), [self.path(place)]
            if place.startswith("linked"):
                judged = [self.path("elsewhere")]
                os.mkdir(judged[0])
                os.symlink(os.path.join(judged[0], name), file)
            elif place.startswith("installed"):
                judged.append(os.path.dirname(self.path(place)))
            shutil.copy(module("cpu"), file)
            self.assertEqual(self.call(*run, executable=program).returncode, 0)
            for folder in judged:
                for mode in (0o777, 0o1777):
                    os.chmod(folder, mode)
                    self.assert_refused(self.call(*run, executable=program), 8,
                                        f"{file} is not loaded: {folder} is for everybody to write")
                os.chmod(folder, 0o775)
                self.assertEqual(self.call(*run, executable=program).returncode, 0)
            if os.geteuid() == 0:
                os.chown(judged[0], 12345, -1)
                self.assert_refused(self.call(*run, executable=program), 8,
                                    f"{judged[0]} belongs neither to root, to you nor")


if __name__ == "__main__":
    cli.main()
