"""Hatchling build hook: compiles the kernel of `penstock.spark` if a C compiler is available.

Without a compiler the wheel is pure Python.
"""

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
    """Return the compiler command, or an empty list if there is none."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    return command if shutil.which(command[0]) else []


def compile_kernel(root: Path, target: Path, flags: tuple[str, ...] = FLAGS) -> str | None:
    """Compile the kernel of the project at `root` into `target`. Return None, or the error."""
    if not compiler():
        return "no C compiler found"
    linking = (
        ("-bundle", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared",)
    )
    sources = sorted(str(path) for path in (root / SOURCES).glob("*.c"))
    temporary = target.with_suffix(f".{os.getpid()}")
    command = [
        *compiler(),
        *flags,
        *linking,
        f"-I{sysconfig.get_path('include')}",
        *sources,
        "-o",
        str(temporary),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        temporary.unlink(missing_ok=True)
        return f"{shlex.join(command)}\n{result.stderr}"
    # Rename, so that processes that have loaded the old file keep it.
    temporary.replace(target)
    return None


class KernelHook(BuildHookInterface[Any]):
    """Builds the extension module beside the Python files, so that editable installs have it too.
    Git ignores the file, so it is added to the wheel as an artifact."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (hatchling's signature)
        root = Path(self.root)
        error = compile_kernel(root, root / KERNEL)
        if error is not None:
            (root / KERNEL).unlink(missing_ok=True)
            self.app.display_warning(f"penstock is built without its compiled kernel: {error}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["artifacts"].append(KERNEL.as_posix())
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"
