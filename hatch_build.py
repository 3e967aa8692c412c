"""Builds the decode kernel of `penstock.spark` into the wheel, where there is a C compiler; without
one the wheel is pure Python."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("src/penstock/spark/kernel/native")
KERNEL = Path("src/penstock/spark/kernel/_native.abi3.so")
FLAGS = ("-O3", "-DNDEBUG", "-std=c11", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


def compiler() -> list[str]:
    """How it is called; empty where there is none."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    return command if shutil.which(command[0]) else []


def compile_kernel(root: Path, target: Path, flags: tuple[str, ...] = FLAGS) -> str | None:
    """Builds the kernel of the project at `root` into one file. What went wrong, or None."""
    if not compiler():
        return "there is no C compiler"
    linking = (
        ("-bundle", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared",)
    )
    sources = sorted(str(path) for path in (root / SOURCES).glob("*.c"))
    unfinished = target.with_suffix(f".{os.getpid()}")
    command = [
        *compiler(),
        *flags,
        *linking,
        f"-I{sysconfig.get_path('include')}",
        *sources,
        "-o",
        str(unfinished),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        unfinished.unlink(missing_ok=True)
        return f"{shlex.join(command)}\n{ran.stderr}"
    # A process may have the old one loaded: it keeps it.
    unfinished.replace(target)
    return None


class KernelHook(BuildHookInterface[Any]):
    """The kernel lies beside the Python files, also of an editable install: git does not know it,
    so the wheel is told of it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (hatchling's signature)
        root = Path(self.root)
        problem = compile_kernel(root, root / KERNEL)
        if problem is not None:
            (root / KERNEL).unlink(missing_ok=True)
            self.app.display_warning(
                f"penstock is built without its compiled decode kernel: {problem}"
            )
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["artifacts"].append(KERNEL.as_posix())
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"
