"""Fixtures for both kernels; the compiled one is built from its sources, whatever is installed.

All tests that use a Spark session run in one pytest-xdist worker, so that only one JVM starts.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hatch_build import KERNEL, compile_kernel, compiler

import penstock.spark.kernel
from penstock.spark.kernel import columns, pure
from penstock.spark.kernel.interface import Kernel

ROOT = Path(__file__).resolve().parents[2]
_NAME = "penstock.spark.kernel._native"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The extension module penstock.spark.kernel._native, newly compiled."""
    if not compiler():
        pytest.skip("no C compiler found")
    target = tmp_path_factory.mktemp("kernel") / KERNEL.name
    error = compile_kernel(ROOT, target)
    assert error is None, error
    spec = importlib.util.spec_from_file_location(_NAME, target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def compiled(native: ModuleType) -> Kernel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, _NAME, native)
        patch.setattr(penstock.spark.kernel, "_native", native, raising=False)
        spec = importlib.util.find_spec("penstock.spark.kernel.compiled")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    kernel: Kernel = module
    return kernel


@pytest.fixture(scope="module", params=["compiled", "pure"])
def kernel(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    """Runs the tests of a module once with each kernel in `columns`."""
    kernel: Kernel = request.getfixturevalue("compiled") if request.param == "compiled" else pure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "kernel", kernel)
        yield kernel
