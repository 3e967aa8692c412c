"""Both kernels for the tests that ask for them: the compiled one is built anew from its sources,
whatever is installed. And one parallel worker for all tests with a session of Spark."""

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
def built(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """penstock.spark.kernel._native, fresh from the compiler."""
    if not compiler():
        pytest.skip("there is no C compiler here")
    target = tmp_path_factory.mktemp("kernel") / KERNEL.name
    problem = compile_kernel(ROOT, target)
    assert problem is None, problem
    spec = importlib.util.spec_from_file_location(_NAME, target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def compiled(built: ModuleType) -> Kernel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, _NAME, built)
        patch.setattr(penstock.spark.kernel, "_native", built, raising=False)
        spec = importlib.util.find_spec("penstock.spark.kernel.compiled")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    kernel: Kernel = module
    return kernel


@pytest.fixture(scope="module", params=["compiled", "pure"])
def kernel(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    """What `columns` uses in this module's tests, once each."""
    chosen: Kernel = request.getfixturevalue("compiled") if request.param == "compiled" else pure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "kernel", chosen)
        yield chosen
